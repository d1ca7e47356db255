//! Client frames for the gate's tests.

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A masked client frame that claims `length` payload bytes, followed by `payload`.
pub(super) fn frame_claiming(first: u8, length: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match length {
        0..=125 => frame.push(0x80 | u8::try_from(length).unwrap()),
        126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        _ => {
            frame.push(0x80 | 127);
            frame.extend(length.to_be_bytes());
        }
    }
    frame.extend(MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}
