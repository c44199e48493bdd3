"""TransformerLens and nnsight see in a run what its own traces show, and change it in the same way."""

import re
import runpy
from pathlib import Path

import pytest
import torch

import pellucid
from tiny_run import TINY_RUN, VERSES

nnsight = pytest.importorskip("nnsight")
bridges = pytest.importorskip("transformer_lens.model_bridge")
transformers = pytest.importorskip("transformers")

TEXTS = {
    "plain": ("The red fox said", "The grey hen said"),
    "demo": ("Long ago there lived a fox", "Once there was a crow"),
}
AS_IT_IS = ["model.norm=rms_norm", "model.activation=swiglu", "model.embedding_std=0.5", "model.dropout=0.0"]
LAYER, HEAD = 1, 1
PAGE = Path(__file__).parents[2] / "docs/ecosystem.md"
TOLERANCE = 1e-5  # of the largest number, where that is above 1: the demo's residual stream grows to hundreds


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run whose class transformers has, and the demo, which is rewritten: each with its folder."""
    place = tmp_path_factory.mktemp("lenses")
    (place / "corpus.txt").write_text(VERSES)
    (place / "tiny.yaml").write_text(TINY_RUN.replace("corpus.txt", str(place / "corpus.txt")))
    plain = pellucid.train(place / "tiny.yaml", place / "run", overrides=AS_IT_IS, steps=2, data_dir=place / "data")
    plain.export(place / "plain", rewrite=False)
    demo = pellucid.load("demo")
    demo.export(place / "demo")
    return {"plain": (plain, place / "plain"), "demo": (demo, place / "demo")}


@pytest.fixture(params=["plain", "demo"])
def looked_at(request, runs):
    """A run, its export as a model of transformers, the latter's width of a head, and two texts of as many tokens."""
    run, folder = runs[request.param]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    traces = [run.trace(text) for text in TEXTS[request.param]]
    n = min(len(trace.ids) for trace in traces)
    return run, folder, model, [trace.ids[:n] for trace in traces]


def assert_same(theirs, ours):
    assert (theirs - ours).abs().max() < TOLERANCE * max(1, ours.abs().max())


def width_of(run):
    return run.model.blocks[LAYER].attention.sublayer.head_width


def test_the_bridge_shows_the_patterns_and_outputs_of_the_heads_and_changes_them_as_we_do(looked_at):
    run, folder, model, (ids, other_ids) = looked_at
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    bridge = bridges.TransformerBridge.boot_transformers(str(folder), hf_model=model, tokenizer=tokenizer, device="cpu")
    text = run.tokenizer.decode(ids[1:])
    ours, other = run.trace(text), run.trace(run.tokenizer.decode(other_ids[1:]))
    assert ours.ids == ids == bridge.to_tokens(text, prepend_bos=True)[0].tolist()
    logits_BTV, cache = bridge.run_with_cache(torch.tensor([ids]))
    _, other_cache = bridge.run_with_cache(torch.tensor([other_ids]))
    assert_same(logits_BTV[0], ours.logits[-1])
    for layer, (attention_HTS, heads_HTK) in enumerate(zip(ours.attention, ours.heads, strict=True)):
        assert_same(cache[f"blocks.{layer}.attn.hook_pattern"][0], attention_HTS)
        z_THK = cache[f"blocks.{layer}.attn.hook_z"][0]
        assert_same(z_THK[..., : width_of(run)].transpose(0, 1), heads_HTK)
        assert not z_THK[..., width_of(run) :].any(), "a head that was made wider has zeros there"
        mean_T1 = ours.residuals[2 * layer + 2].mean(-1, keepdim=True) if "Qwen3" in type(model).__name__ else 0
        assert_same(cache[f"blocks.{layer}.hook_resid_post"][0], ours.residuals[2 * layer + 2] - mean_T1)

    def with_head(value_THK):
        def change(z_BTHK, hook):
            z_BTHK[:, :, HEAD] = value_THK[:, HEAD]
            return z_BTHK

        return bridge.run_with_hooks(torch.tensor([ids]), fwd_hooks=[(f"blocks.{LAYER}.attn.hook_z", change)])[0]

    place, theirs = ("head", LAYER, HEAD), other_cache[f"blocks.{LAYER}.attn.hook_z"][0]
    assert_same(with_head(torch.zeros_like(theirs)), run.trace(text, knock_out=[place]).logits[-1])
    patched = run.trace(text, patch={place: other}).logits[-1]
    assert (patched - ours.logits[-1]).abs().max() > 0.01
    assert_same(with_head(theirs), patched)


def test_nnsight_knocks_the_same_head_out_of_the_export_and_of_the_run_itself(looked_at):
    run, _, model, (ids, _) = looked_at
    text, tokens_BT = run.tokenizer.decode(ids[1:]), torch.tensor([ids])
    K, wider = width_of(run), model.config.head_dim
    ours = run.trace(text)
    without = run.trace(text, knock_out=[("head", LAYER, HEAD)])
    exported, itself = nnsight.NNsight(model), nnsight.NNsight(run.model.eval())
    with torch.no_grad(), exported.trace(tokens_BT):
        z_BTD = exported.model.layers[LAYER].self_attn.o_proj.input.clone().save()
        exported.model.layers[LAYER].self_attn.o_proj.input[..., HEAD * wider : (HEAD + 1) * wider] = 0
        their_logits_BTV = exported.output.logits.save()
    assert_same(z_BTD[0, :, HEAD * wider : HEAD * wider + K], ours.heads[LAYER, HEAD])
    assert_same(their_logits_BTV[0], without.logits[-1])
    with torch.no_grad(), itself.trace(tokens_BT):
        itself.blocks[LAYER].attention.sublayer.W_O.input[..., HEAD * K : (HEAD + 1) * K] = 0
        logits_BTV = itself.output.save()
    assert_same(logits_BTV[0], without.logits[-1])


def test_the_code_of_the_page_shows_head_1_2_of_the_demo_and_the_demo_without_it(runs, monkeypatch, tmp_path):
    demo, folder = runs["demo"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exported").symlink_to(folder)
    section = PAGE.read_text("utf-8").partition("## Looking with other tools")[2].partition("\n## ")[0]
    text = "Long ago there lived a fox"
    without = demo.trace(text, knock_out=[("head", 1, 2)]).logits[-1]
    codes = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    for name, code in zip(("with_nnsight.py", "with_the_bridge.py"), codes, strict=True):
        Path(name).write_text(code)
    assert_same(runpy.run_path("with_nnsight.py")["logits"][0], without)
    ran = runpy.run_path("with_the_bridge.py")
    assert_same(ran["without"][0], without)
    cache, hidden = ran["cache"], {}
    assert_same(cache["blocks.1.attn.hook_pattern"][0, 2], demo.trace(text).attention[1, 2])
    with demo.model.blocks[1].feed_forward.sublayer.W_2.register_forward_pre_hook(lambda _, x: hidden.update(x=x[0])):
        demo.trace(text)
    assert_same(cache["blocks.1.mlp.hook_post"], 64 * hidden["x"])
