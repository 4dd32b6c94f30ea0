//! Sizes that servers report, and names of models.

use super::*;
use crate::kv::layout::Layout;

#[test]
fn tokens_have_the_bytes_that_servers_report() {
    let expected = [
        (Model::LLAMA_3_1_8B, 131_072),
        (Model::LLAMA_3_1_70B, 327_680),
        (Model::DEEPSEEK_R1_DISTILL_QWEN_32B, 262_144),
        (Model::DEEPSEEK_V3, 70_272),
    ];
    assert_eq!(expected.map(|(model, _)| model).as_slice(), Model::ALL);
    for (model, bytes) in expected {
        assert_eq!(model.token_bytes(), bytes, "{}", model.name);
        let layout = Layout::new(model.shape(16, 10, Order::BlockLayerPart)).unwrap();
        assert_eq!((layout.token_bytes(), layout.bytes()), (bytes, bytes * 160), "{}", model.name);
    }
}

#[test]
fn names_parse_in_any_case() {
    for model in Model::ALL {
        assert_eq!(model.name.to_lowercase().parse(), Ok(*model));
    }
    insta::assert_snapshot!(
        "gpt-5".parse::<Model>().unwrap_err(),
        @r#"unknown model "gpt-5"; use one of Llama-3.1-8B, Llama-3.1-70B, DeepSeek-R1-Distill-Qwen-32B, DeepSeek-V3"#
    );
}
