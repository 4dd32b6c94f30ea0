//! Tests of the figure against the plan, and of its places on the page.

use super::canvas::{Text, width};
use super::strip::Cell;
use super::view::View;
use super::*;
use crate::explain::plan;
use crate::presets::{blocks_of, layout};
use crate::sides::Rank;
use clap::Parser;
use examples::chart::svg::WIDTH;
use std::collections::BTreeSet;

const FLAGS: [&str; 14] = [
    "",
    "--tp 4:2",
    "--tp 4:2 --head-order hnd --tensors layer",
    "--tp 2:1 --head-order hnd:nhd",
    "--tp 1:2 --head-order nhd:hnd --tensors part",
    "--tp 1:2 --pull",
    "--tp 8:1 --head-order hnd:nhd --pull",
    "--tp 16:8 --tensors part",
    "--tp 8:16 --stream",
    "--tp 64:64 --head-order hnd:nhd",
    "--tp 1:64",
    "--tp 64:1",
    "--model deepseek-v3 --tp 2:4",
    "--model deepseek-v3 --tp 64:3 --stream",
];

fn args(flags: &str) -> Args {
    Args::parse_from(format!("kvcache_transfer --explain {flags}").split_whitespace())
}

#[test]
fn every_cell_comes_once_from_the_cell_of_the_same_head_and_token() {
    for (flags, block) in FLAGS.iter().flat_map(|flags| [1, 2, 4, 16, 64].map(|block| (flags, block))) {
        let view = View::new(&args(&format!("{flags} --block {block} --prompt {}", 3 * block))).unwrap();
        let [prefill, decode] = &view.sides;
        for (to, pool) in decode.iter().enumerate() {
            let mut brought: Vec<&Cell> = Vec::new();
            for Sent { from, pieces, .. } in view.writes.iter().filter(|sent| sent.to == to) {
                let source = &prefill[*from].strip;
                for piece in pieces {
                    let there = pool.strip.within(piece.destination..piece.destination + piece.len);
                    let here = source.within(piece.source..piece.source + piece.len);
                    let (here, there): (Vec<_>, Vec<_>) = (here.collect(), there.collect());
                    assert_eq!(here.len(), there.len(), "{flags}");
                    for ((one, bytes), (other, there)) in here.into_iter().zip(there) {
                        assert_eq!(bytes.start - piece.source, there.start - piece.destination, "{flags}");
                        let of = |cell: &Cell| (cell.part, cell.token, cell.head);
                        assert_eq!((of(one), &one.bytes), (of(other), &bytes), "{flags}");
                        brought.push(other);
                    }
                }
            }
            brought.sort_by_key(|cell| cell.bytes.start);
            assert_eq!(brought, pool.strip.cells.iter().collect::<Vec<_>>(), "{flags} --block {block}");
        }
    }
}

/// Without anything left out, the pieces have the bytes of the block and no other.
#[test]
fn the_pieces_of_a_whole_block_sum_up_to_its_bytes() {
    for flags in
        ["--tp 4:2", "--tp 2:1 --head-order hnd:nhd", "--model deepseek-v3 --tp 2:4", "--tp 1:2 --pull"]
    {
        let view = View::new(&args(&format!("{flags} --block 4 --prompt 12"))).unwrap();
        assert_eq!(view.tokens, 4);
        for (to, pool) in view.sides[1].iter().enumerate() {
            let sent = view.writes.iter().filter(|sent| sent.to == to);
            let bytes: u64 = sent.flat_map(|sent| &sent.pieces).map(|piece| piece.len).sum();
            assert_eq!(bytes, pool.strip.bytes.end - pool.strip.bytes.start, "{flags}");
        }
    }
}

/// All blocks of all layers have as many pieces, so the plan has so many times those of one.
#[test]
fn the_pieces_of_a_block_are_those_of_the_plan() {
    for flags in
        ["", "--tp 4:2", "--tp 1:1 --head-order nhd:hnd", "--tp 1:2 --pull", "--tp 2:4 --model deepseek-v3"]
    {
        let args = args(&format!("{flags} --prompt 64"));
        let blocks = blocks_of(args.prompt, args.block);
        let mut pieces = 0;
        for rank in args.ranks(Role::Decode) {
            for number in rank.peers(&args).unwrap() {
                let [source, destination] = [Rank { role: Role::Prefill, number }, rank]
                    .map(|rank| layout(&args, rank, blocks).unwrap());
                pieces += plan(&args, &source, &destination, blocks).unwrap().size().pieces;
            }
        }
        let view = View::new(&args).unwrap();
        assert_eq!(pieces, view.pieces as u64 * u64::from(blocks * args.model.layers), "{flags}");
    }
}

#[test]
fn every_piece_is_a_band_and_every_write_an_outline() {
    for flags in FLAGS {
        let (args, mut bands) = (args(flags), 0);
        let view = View::new(&args).unwrap();
        for sent in &view.writes {
            let staged =
                [sent.write.source, sent.write.destination].map(|end| usize::from(end == End::Staging));
            let pool = &view.sides[0][sent.from].strip;
            let stripes: usize = sent.pieces.iter().map(|piece| by_colour(pool, piece).len()).sum();
            bands += stripes * (1 + staged[0] + staged[1]);
        }
        let Canvas { shapes, .. } = Figure::new(&args).unwrap().canvas;
        let count = |mark: &str| shapes.iter().filter(|shape| shape.contains(mark)).count();
        assert_eq!((count("0.42"), count("<title>")), (bands, view.writes.len()), "{flags}");
    }
}

fn span(text: &Text) -> [f64; 2] {
    let width = width(&text.words, text.size);
    let left = if text.centred { text.x - width / 2.0 } else { text.x };
    [left, left + width]
}

#[test]
fn nothing_is_outside_the_page_and_no_text_over_another() {
    for flags in FLAGS {
        let Figure { height, canvas, .. } = Figure::new(&args(flags)).unwrap();
        assert!(canvas.shapes.len() + canvas.texts.len() < 2000, "{flags}: {}", canvas.shapes.len());
        for shape in &canvas.shapes {
            let places = shape.split(" fill=").next().unwrap().split(" stroke=").next().unwrap();
            let numbers = places.split(|c: char| !c.is_ascii_digit() && !"-.".contains(c));
            let numbers: Vec<f64> = numbers.filter_map(|number| number.parse().ok()).collect();
            let inside = |number: &f64| (0.0..=WIDTH.max(height)).contains(number);
            assert!(numbers.iter().all(inside) && !shape.contains("NaN"), "{flags}: {shape}");
            if let ("<rect x=", [x, y, wide, high]) = (&places[..8], &numbers[..]) {
                assert!(x + wide <= WIDTH && y + high <= height, "{flags}: {shape}");
            }
        }
        for (at, text) in canvas.texts.iter().enumerate() {
            let [left, right] = span(text);
            assert!(left >= 0.0 && right <= WIDTH && text.y < height - 4.0, "{flags}: {text:?}");
            for other in &canvas.texts[at + 1..] {
                let [from, to] = span(other);
                let apart =
                    right <= from || to <= left || (text.y - other.y).abs() >= text.size.min(other.size);
                assert!(apart, "{flags}: {text:?} {other:?}");
            }
        }
    }
}

#[test]
fn the_file_needs_no_other_and_its_tags_are_closed() {
    let text = Figure::new(&args("--tp 4:2")).unwrap().to_string();
    for foreign in ["<script", "href", "@import", "url(", "<style"] {
        assert!(!text.contains(foreign), "{foreign}");
    }
    for tag in ["svg", "text", "title"] {
        let count = |mark: String| text.matches(&mark).count();
        assert_eq!(count(format!("<{tag}")), count(format!("</{tag}>")), "{tag}");
    }
}

#[test]
fn layouts_without_a_plan_are_refused() {
    let error = Figure::new(&args("--tp 3:1")).unwrap_err().to_string();
    assert!(error.contains('3'), "{error}");
    assert!(Figure::new(&args("--tensors 7")).is_err());
}

/// The commands in the document draw the figures beside it.
#[test]
fn the_figures_of_the_document_are_those_of_this_program() {
    let docs = format!("{}/../docs", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(format!("{docs}/layouts.md")).unwrap();
    let mut names = BTreeSet::new();
    for flags in page.lines().filter_map(|line| line.strip_prefix("$ kvcache_transfer --explain ")) {
        let args = args(flags);
        let name = args.plot.clone().unwrap().into_os_string().into_string().unwrap();
        let drawn = std::fs::read_to_string(format!("{docs}/figures/{name}")).unwrap();
        assert!(
            drawn == Figure::new(&args).unwrap().to_string(),
            "{name}: cargo xtask figures --plans draws it anew"
        );
        names.insert(name);
    }
    assert_eq!(names.len(), 6, "{names:?}");
}
