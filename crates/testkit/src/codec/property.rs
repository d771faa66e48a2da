//! The properties of MQTT 5 §2.2.2.2.

use bytes::{Buf, Bytes};

use super::Protocol;
use super::wire::{Malformed, VarInt, Wire, put_var_int};

/// The properties of one packet, in the order in which they are on the wire.
pub type Properties = Vec<Property>;

/// The table of the standard: identifier, name, type on the wire, and how that type is shown.
macro_rules! properties {
    ($($id:literal $name:ident($shown:ty) as $wire:ty, $into:expr, $from:expr, $doc:literal;)*) => {
        /// One property.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Property {
            $(#[doc = $doc] $name($shown),)*
        }

        impl Property {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name(value) => {
                        out.push($id);
                        let wire: $wire = $into(value.clone());
                        wire.put(out);
                    })*
                }
            }

            fn get(from: &mut Bytes) -> Result<Self, Malformed> {
                match from.try_get_u8()? {
                    $($id => Ok(Self::$name($from(<$wire>::get(from)?))),)*
                    other => Err(Malformed::Property(other)),
                }
            }
        }
    };
}

const fn same<T: Copy>(value: T) -> T {
    value
}

fn text(value: String) -> String {
    value
}

fn binary(value: Bytes) -> Bytes {
    value
}

fn pair(value: (String, String)) -> (String, String) {
    value
}

const fn number(value: VarInt) -> u32 {
    value.0
}

properties! {
    0x01 PayloadFormat(u8) as u8, same, same, "Payload format indicator.";
    0x02 MessageExpiry(u32) as u32, same, same, "Message expiry interval in seconds.";
    0x03 ContentType(String) as String, text, text, "Content type.";
    0x08 ResponseTopic(String) as String, text, text, "Response topic.";
    0x09 CorrelationData(Bytes) as Bytes, binary, binary, "Correlation data.";
    0x0B SubscriptionId(u32) as VarInt, VarInt, number, "Subscription identifier.";
    0x11 SessionExpiry(u32) as u32, same, same, "Session expiry interval in seconds.";
    0x12 AssignedClientId(String) as String, text, text, "Assigned client identifier.";
    0x13 ServerKeepAlive(u16) as u16, same, same, "Server keep alive in seconds.";
    0x15 AuthenticationMethod(String) as String, text, text, "Authentication method.";
    0x16 AuthenticationData(Bytes) as Bytes, binary, binary, "Authentication data.";
    0x17 RequestProblemInformation(u8) as u8, same, same, "Request problem information.";
    0x18 WillDelay(u32) as u32, same, same, "Will delay interval in seconds.";
    0x19 RequestResponseInformation(u8) as u8, same, same, "Request response information.";
    0x1A ResponseInformation(String) as String, text, text, "Response information.";
    0x1C ServerReference(String) as String, text, text, "Server reference.";
    0x1F ReasonString(String) as String, text, text, "Reason string.";
    0x21 ReceiveMaximum(u16) as u16, same, same, "Receive maximum.";
    0x22 TopicAliasMaximum(u16) as u16, same, same, "Topic alias maximum.";
    0x23 TopicAlias(u16) as u16, same, same, "Topic alias.";
    0x24 MaximumQos(u8) as u8, same, same, "Maximum QoS.";
    0x25 RetainAvailable(u8) as u8, same, same, "Retain available.";
    0x26 User((String, String)) as (String, String), pair, pair, "A user property.";
    0x27 MaximumPacketSize(u32) as u32, same, same, "Maximum packet size in bytes.";
    0x28 WildcardAvailable(u8) as u8, same, same, "Wildcard subscription available.";
    0x29 SubscriptionIdAvailable(u8) as u8, same, same, "Subscription identifier available.";
    0x2A SharedAvailable(u8) as u8, same, same, "Shared subscription available.";
}

impl Property {
    /// A user property.
    pub fn user(name: &str, value: &str) -> Self {
        Self::User((name.to_owned(), value.to_owned()))
    }
}

/// Appends the property length and the properties, where the version has them.
pub(crate) fn put_properties(out: &mut Vec<u8>, properties: &[Property], protocol: Protocol) {
    if protocol == Protocol::V311 {
        return;
    }
    if properties.is_empty() {
        out.push(0);
        return;
    }
    let mut encoded = Vec::new();
    for property in properties {
        property.put(&mut encoded);
    }
    put_var_int(out, encoded.len());
    out.extend_from_slice(&encoded);
}

/// Reads the property length and the properties, where the version has them.
pub(crate) fn get_properties(
    from: &mut Bytes,
    protocol: Protocol,
) -> Result<Properties, Malformed> {
    if protocol == Protocol::V311 {
        return Ok(Vec::new());
    }
    let length = VarInt::get(from)?.0 as usize;
    if length == 0 {
        return Ok(Vec::new());
    }
    if from.len() < length {
        return Err(Malformed::Short);
    }
    let mut from = from.split_to(length);
    let mut properties = Vec::new();
    while !from.is_empty() {
        properties.push(Property::get(&mut from)?);
    }
    Ok(properties)
}
