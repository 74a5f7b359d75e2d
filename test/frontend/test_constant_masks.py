# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Masks of attention that a graph computes from constants become flags; all others stay."""

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.frontend.constant_masks import fold_constant_masks

TOKENS = 20


def attend(mask, q, **more):
    return F.scaled_dot_product_attention(q, q * 2, q + 1, attn_mask=mask, **more)


def bidirectional(q):
    """As transformers writes it: a comparison that holds for every query, expanded along the keys."""
    positions = torch.arange(q.shape[-2], device=q.device) + 0
    return attend((positions[None, None, :, None] >= 0).expand(q.shape[0], -1, -1, q.shape[-2]), q)


def causal(q):
    """As transformers writes it where documents may be packed: positions that follow each other are of one document."""
    positions = torch.arange(TOKENS, device=q.device).unsqueeze(0).expand(2, -1)
    document = (torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    batch = torch.arange(2, device=q.device)[:, None, None, None]
    rows, columns = (
        torch.arange(TOKENS).to(q.device)[index] for index in ((None, None, ..., None), (None, None, None))
    )
    mask = rows.new_ones((), dtype=torch.bool) & (columns <= rows)
    return attend(mask & (document[batch, rows] == document[batch, columns]), q)


def added(q):
    return attend(torch.zeros(TOKENS, TOKENS, dtype=q.dtype), q)


def added_causal(q):
    return attend(torch.triu(torch.full((TOKENS, TOKENS), float("-inf")), diagonal=1), q)


def of_the_query(q):
    """Its shape and dtype, not its elements."""
    return attend(q.new_ones(TOKENS, TOKENS).tril().to(torch.bool) | torch.zeros_like(q[0, 0, :, :1]).bool(), q)


def of_two_layers(q):
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    return attend(mask, attend(mask, q)) + mask.sum()


def by_position(q):
    return F.scaled_dot_product_attention(q, q, q, torch.ones(TOKENS, 1, dtype=torch.bool), 0.0, False)


def below_zero(q):
    return attend(torch.ones(TOKENS, TOKENS, dtype=torch.bool), q, scale=-0.1)


def causal_below_zero(q):
    return attend(torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril(), q, scale=-0.1)


def strictly_below(q):
    return attend(torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril(-1), q)


def at_the_bottom_right(q):
    keys = torch.cat([q, q], -2)
    mask = torch.ones(TOKENS, 2 * TOKENS, dtype=torch.bool).tril(TOKENS)
    return F.scaled_dot_product_attention(q, keys, keys, attn_mask=mask)


def written_into(q):
    """Through a view, by a value of the input."""
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    mask.view(-1)[3] = q.sum() > 1e9
    return attend(mask, q)


def written_by_an_operator(q):
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    hide_first(mask)
    return attend(mask, q)


def random(q):
    return attend(torch.rand(TOKENS, TOKENS) > -1, q)


def undefined(q):
    """True at last, so that eager computes the same."""
    return attend(torch.empty(TOKENS, TOKENS, dtype=torch.bool) | torch.ones((), dtype=torch.bool), q)


def biased(q):
    return attend(torch.ones(TOKENS, TOKENS).tril() - 1, q)


def widening(q):
    """The mask has more batches than the query."""
    return attend(torch.ones(2, 1, TOKENS, TOKENS, dtype=torch.bool), q[:1])


@torch.library.custom_op("kiln_test::hide_first", mutates_args={"mask"})
def hide_first(mask: torch.Tensor) -> None:
    mask[:, 0] = False


def folded(model, *given, dynamic=False):
    """The graph that Dynamo traces, behind the fold: (masks that went, the attention nodes' flags)."""
    seen = []

    def backend(gm, inputs):
        count = fold_constant_masks(gm)
        nodes = [n for n in gm.graph.nodes if n.target is F.scaled_dot_product_attention]
        flags = [n.kwargs.get("is_causal", n.args[5] if len(n.args) > 5 else False) for n in nodes]
        seen.append((count, flags, len(gm.graph.nodes)))
        gm.graph.lint()
        return gm

    torch._dynamo.reset()
    out = torch.compile(model, backend=backend, fullgraph=True, dynamic=dynamic)(*given)
    torch.testing.assert_close(out, model(*given), equal_nan=True)
    return seen[0]


def queries(**more):
    return torch.randn(2, 3, TOKENS, 16, **more)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("model", [bidirectional, added, by_position])
def test_masks_that_hide_nothing_go(model, grad):
    count, flags, _ = folded(model, queries(requires_grad=grad))
    assert (count, flags) == (1, [False])


@pytest.mark.parametrize("model", [causal, added_causal, of_the_query])
def test_causal_masks_become_a_flag(model):
    count, flags, nodes = folded(model, queries())
    assert (count, flags) == (1, [True])
    assert nodes <= 6  # the input, two operands, the attention, the output; what gave a shape


def test_what_else_reads_the_mask_still_has_it():
    assert folded(of_two_layers, queries())[:2] == (2, [False, False])


@pytest.mark.parametrize(
    "model",
    [
        below_zero,
        causal_below_zero,
        strictly_below,
        at_the_bottom_right,
        written_into,
        written_by_an_operator,
        random,
        undefined,
        biased,
    ],
)
def test_all_others_stay(model):
    assert folded(model, queries())[0] == 0


def test_what_eager_refuses_stays():
    with pytest.raises(RuntimeError):
        folded(widening, queries())


def test_symbolic_sizes_stay():
    assert folded(bidirectional, queries(), dynamic=True)[0] == 0


def test_under_inference_mode():
    with torch.inference_mode():
        assert folded(bidirectional, queries())[0] == 1


def test_masks_above_the_limit_are_not_computed(monkeypatch):
    monkeypatch.setattr("kiln.frontend.constant_masks._MOST_ELEMENTS", TOKENS * TOKENS)
    assert folded(causal, queries())[0] == 0
    assert folded(bidirectional, queries())[0] == 1  # an expanded tensor's elements in memory count


def test_gradients_are_those_of_the_mask():
    """Flash attention's gradient, by Kiln's own path, against eager's in float64."""
    for model in (bidirectional, causal):
        torch._dynamo.reset()
        q = queries(requires_grad=True)
        torch.compile(model, backend=kiln.backend)(q).sin().sum().backward()
        wide = q.detach().double().requires_grad_()
        model(wide).sin().sum().backward()
        torch.testing.assert_close(q.grad.double(), wide.grad, rtol=1e-4, atol=1e-5)


def test_keeps_the_order_of_dims_that_eager_chooses_with_a_mask():
    """PyTorch has a mask of three dims, beside queries of four, computed by the formula, whose result is dense in the
    order of its dims; flash attention's is not.
    """

    def f(q):
        return attend(torch.ones(1, TOKENS, 1, dtype=torch.bool), q)[..., ::2]

    q = torch.randn(2, TOKENS, 3, 8).transpose(1, 2)
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(f, backend=kiln.backend, fullgraph=True, options={"fallback": False})(q)
        unmasked = F.scaled_dot_product_attention(q, q * 2, q + 1)
        wanted = f(q)
    torch.testing.assert_close(found, wanted)
    assert unmasked[..., ::2].stride() != wanted.stride(), "this case does not show anything"
    assert found.stride() == wanted.stride()


def test_causal_attention_by_the_formula_is_folded():
    """PyTorch has values of another width than keys computed by the formula, which makes the causal mask."""

    def f(q):
        mask = torch.arange(TOKENS) <= torch.arange(TOKENS)[:, None]
        return F.scaled_dot_product_attention(q, q * 2, q[..., :4], attn_mask=mask)

    q = torch.randn(2, 3, TOKENS, 8)
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(f, backend=kiln.backend, fullgraph=True, options={"fallback": False})(q)
    torch.testing.assert_close(found, f(q))
    assert found.stride() == f(q).stride()
