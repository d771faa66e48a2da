//! Two instances of which one stands by.

use bridge_testkit::{Installation, Mosquitto, PortLease};
use tempfile::tempdir;

use crate::desk::Desk;
use crate::stage::TOKEN;

#[tokio::test]
async fn an_instance_that_stands_by_says_so_and_is_in_no_trouble() {
    let broker = Mosquitto::start().await;
    let shared = tempdir().unwrap();
    let lease = shared.path().join("lease");
    let ports = [PortLease::take(), PortLease::take()];
    let [active, standby] = ports.each_ref().map(|admin| {
        Installation::with(|monitor| {
            format!(
                "bridge: {{ id: pair }}
data_dir: data
monitor: {{ listen: \"127.0.0.1:{monitor}\" }}
admin: {{ listen: \"127.0.0.1:{}\", token: {TOKEN} }}
lease: {{ store: file, path: {} }}
sessions:
  plant: {{ url: \"{}\", client_id: pair, session_mode: exclusive }}
routes:
  all:
    from: {{ session: plant, topics: [\"in/#\"], qos: 1 }}
    bindings:
      out: {{ session: plant, topic: \"out/{{topic}}\" }}
",
                admin.port(),
                lease.display(),
                broker.url(),
            )
        })
    });
    let program = env!("CARGO_BIN_EXE_bridge");
    let _active = active.bridge(program).start().await;
    let _standby = standby.bridge(program).ready_path("/livez").start().await;

    let [first, second] = ports.map(|admin| format!("http://127.0.0.1:{}/", admin.port()));
    let desk = Desk::at_url(&first).await;
    desk.log_in(TOKEN).await;
    desk.browser.sees("active").await;
    desk.browser.sees("All is well.").await;
    let desk = Desk::at_url(&second).await;
    desk.log_in(TOKEN).await;
    desk.browser.sees("This instance stands by:").await;
    assert!(
        desk.browser
            .is("!document.querySelector('main .bad:not([hidden])')")
            .await
    );
}
