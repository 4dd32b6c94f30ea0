//! Mappings of each kind, from text and from the kernel.

use super::*;

/// Returns the text of a mapping as the kernel writes it.
fn mapping(range: &str, rest: &str, flags: &str) -> String {
    format!("{range} {rest}\nSize:  8 kB\nName:  nothing\nProtectionKey:  0\nVmFlags: {flags}\n")
}

fn anonymous(range: &str) -> String {
    mapping(range, "rw-p 00000000 00:00 0 ", "rd wr mr mw me ac sd")
}

fn checked(text: &str, range: Range<usize>) -> Result<(), Unshared> {
    check_text(text.as_bytes(), range).unwrap()
}

#[test]
fn all_of_the_range_must_be_ordinary_and_nothing_else() {
    let other = mapping("1000-2000", "r--s 00000000 00:01 7 /other", "rd sh");
    let all =
        [&other[..], &anonymous("2000-4000"), &anonymous("4000-6000"), &other.replace("1000-2", "6000-7")];
    let all = all.concat();
    for whole in [0x2000..0x6000, 0x2000..0x4000, 0x3000..0x5000, 0x5000..0x6000] {
        assert_eq!(checked(&all, whole.clone()), Ok(()), "{whole:x?}");
    }
    for shared in [0x1000..0x3000, 0x5000..0x7000, 0x6000..0x7000] {
        assert_eq!(checked(&all, shared.clone()), Err(Unshared::Shared), "{shared:x?}");
    }
    let holed = [anonymous("2000-4000"), anonymous("5000-6000")].concat();
    for unmapped in [0x3000..0x6000, 0x1000..0x3000, 0x5000..0x7000, 0x8000..0x9000] {
        assert_eq!(checked(&holed, unmapped.clone()), Err(Unshared::Protected), "{unmapped:x?}");
    }
}

#[test]
fn what_is_not_ordinary_is_told_apart() {
    let of = |rest: &str, flags: &str| checked(&mapping("1000-2000", rest, flags), 0x1000..0x2000);
    for name in ["", "[heap]", "[anon:arena]"] {
        assert_eq!(of(&format!("rw-p 00000000 00:00 0   {name}"), "rd wr nh"), Ok(()), "{name}");
    }
    assert_eq!(of("rw-s 00000000 00:01 5  /memfd:x (deleted)", "rd wr sh"), Err(Unshared::Shared));
    assert_eq!(of("rw-p 00000000 08:01 5  /tmp/x", "rd wr"), Err(Unshared::File));
    assert_eq!(of("rw-p 00000000 00:0f 5  /anon_hugepage (deleted)", "rd wr ht"), Err(Unshared::HugePages));
    for rights in ["r--p", "-w-p", "rwxp", "---p"] {
        assert_eq!(of(&format!("{rights} 00000000 00:00 0"), "rd"), Err(Unshared::Protected), "{rights}");
    }
    for (flag, said) in [("lo", "mlock"), ("dc", "DONTFORK"), ("uw", "userfaultfd"), ("zz", "VmFlags")] {
        let text = of("rw-p 00000000 00:00 0", &format!("rd wr {flag}")).unwrap_err().to_string();
        assert!(text.contains(said), "{flag}: {text}");
    }
    let keyed = anonymous("1000-2000").replace("Key:  0", "Key:  3");
    assert!(matches!(checked(&keyed, 0x1000..0x2000), Err(Unshared::Marked { .. })));
}

#[test]
fn the_kernels_own_text_is_read() {
    let heap = vec![0u8; 1 << 20];
    let at = heap.as_ptr() as usize;
    assert_eq!(check(at..at + heap.len()), Ok(()));
    let constant = "of this executable";
    let at = constant.as_ptr() as usize;
    assert_eq!(check(at..at + constant.len()), Err(Unshared::Protected));
    assert_eq!(check(1..2), Err(Unshared::Protected));
}
