//! The name that was probably meant.

/// The one of `known` that is closest to `wrong`, when one is close enough to be a slip.
pub(crate) fn nearest<'a, T: AsRef<str> + ?Sized>(
    wrong: &str,
    known: impl IntoIterator<Item = &'a T>,
) -> Option<&'a T> {
    let wrong = wrong.to_ascii_lowercase().replace('-', "_");
    let length = wrong.chars().count();
    if length < 3 {
        // Everything short is near.
        return None;
    }
    let allowed = (length / 3).min(3);
    known
        .into_iter()
        .map(|name| {
            let plain = name.as_ref().to_ascii_lowercase().replace('-', "_");
            (strsim::osa_distance(&wrong, &plain), name)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_nonsense_finds_none() {
        let known = ["topics", "session", "qos", "max_in_flight", "client_id"];
        for (wrong, right) in [
            ("topic", Some("topics")),
            ("sesion", Some("session")),
            ("qso", Some("qos")),
            ("max-in-flight", Some("max_in_flight")),
            ("Client_ID", Some("client_id")),
            ("maxInFlight", Some("max_in_flight")),
            ("password", None),
            ("", None),
            ("3", None),
        ] {
            assert_eq!(nearest(wrong, known.iter()).copied(), right, "{wrong}");
        }
    }
}
