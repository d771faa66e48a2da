//! One source, several destinations: each at its own pace.

use std::fmt::Write as _;

use bridge_testkit::Installation;

/// One of the destinations: the name of its binding and its session, where it is, and what else
/// the configuration says of both.
pub(crate) struct To<'a> {
    pub(crate) name: &'a str,
    pub(crate) url: String,
    pub(crate) session: &'a str,
    pub(crate) binding: &'a str,
}

/// A route `all` from the session `plant` to each of those.
pub(crate) fn installation(plant: &str, destinations: &[To<'_>]) -> Installation {
    let (mut sessions, mut bindings) = (String::new(), String::new());
    for To {
        name,
        url,
        session,
        binding,
    } in destinations
    {
        let _ = writeln!(
            sessions,
            "  {name}: {{ url: \"{url}\", client_id: {name}, \
             reconnect: {{ min: 20ms, max: 200ms }}{session} }}"
        );
        let _ = writeln!(bindings, "      {name}: {{ session: {name}{binding} }}");
    }
    Installation::with(|port| {
        format!(
            "bridge: {{ id: test }}\n\
             data_dir: data\n\
             monitor: {{ listen: \"127.0.0.1:{port}\" }}\n\
             sessions:\n\
             \x20 plant: {{ url: \"{plant}\", client_id: plant }}\n\
             {sessions}\
             routes:\n\
             \x20 all:\n\
             \x20   from: {{ session: plant, topics: [\"#\"] }}\n\
             \x20   bindings:\n\
             {bindings}"
        )
    })
}
