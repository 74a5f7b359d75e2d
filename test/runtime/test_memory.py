# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

from hypothesis import given, settings
from hypothesis import strategies as st

from kiln.runtime.memory import ALIGNMENT, Interval, aligned, assign_offsets

intervals = st.lists(
    st.builds(
        lambda size, first, length: Interval(size, first, first + length),
        st.integers(0, 5000),
        st.integers(0, 30),
        st.integers(0, 8),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(intervals)
def test_live_buffers_do_not_overlap(buffers):
    offsets, total = assign_offsets(buffers)
    for i, a in enumerate(buffers):
        assert offsets[i] % ALIGNMENT == 0
        assert offsets[i] + a.size <= total or a.size == 0
        for j, b in enumerate(buffers[:i]):
            if a.first <= b.last and b.first <= a.last and a.size and b.size:
                assert offsets[i] + a.size <= offsets[j] or offsets[j] + b.size <= offsets[i]


@settings(max_examples=100)
@given(intervals)
def test_total_is_at_least_the_peak_and_at_most_the_sum(buffers):
    _, total = assign_offsets(buffers)
    steps = range(max((b.last for b in buffers), default=0) + 1)
    peak = max((sum(aligned(b.size) for b in buffers if b.first <= s <= b.last) for s in steps), default=0)
    assert peak <= total <= sum(aligned(b.size) for b in buffers)


def test_reuses_the_best_gap():
    # Three buffers side by side at step 0; the middle one dies, and a small later one goes into its gap.
    buffers = [Interval(256, 0, 2), Interval(128, 0, 0), Interval(512, 0, 2), Interval(100, 1, 2)]
    offsets, total = assign_offsets(buffers)
    assert offsets[3] == offsets[1]
    assert total == 896
