//! Names and codes of the element types, and counts beyond any buffer.

use super::*;

#[test]
fn names_are_those_of_nccl_tests_and_parse_back() {
    for &data_type in DataType::ALL {
        assert_eq!(data_type.to_string().parse(), Ok(data_type));
    }
    assert_eq!(format!("[{:>6}]", DataType::F16), "[  half]");
    assert_eq!(
        "f64".parse::<DataType>().unwrap_err().to_string(),
        "unknown data type \"f64\"; use one of int8, uint8, int16, uint16, int32, uint32, int64, uint64, half, \
         float, double, bfloat16"
    );
}

#[test]
fn codes_stand_for_one_type_each() {
    let codes: std::collections::HashSet<u8> = DataType::ALL.iter().map(|t| t.code()).collect();
    assert_eq!(codes, (1..=DataType::ALL.len() as u8).collect());
    for &data_type in DataType::ALL {
        assert_eq!(DataType::of_code(data_type.code()), Some(data_type));
    }
    assert_eq!((DataType::of_code(0), DataType::of_code(255)), (None, None));
}

#[test]
fn a_count_beyond_any_buffer_is_refused() {
    assert_eq!(DataType::F32.bytes(3), Ok(12));
    for count in [usize::MAX, usize::MAX / 4 + 1, isize::MAX as usize / 4 + 1] {
        assert_eq!(
            DataType::F32.bytes(count),
            Err(ReduceError::TooManyElements { count, data_type: DataType::F32 })
        );
    }
}
