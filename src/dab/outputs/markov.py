"""The Markov prior: a hidden Markov model of labels that persist in a stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from functools import cache
from itertools import product
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from dab.outputs.output import Output, register_output
from dab.parts.schema import Array, List, Number, take

__all__ = ["Markov", "Mode"]

Mode = Literal["smooth", "filter"]

# Samples processed at once: memory grows with them, and "smooth" looks no further ahead.
_CHUNK = 256
# Probabilities below exp(_LOWEST) count as that: a float32 must hold their ratios.
_LOWEST = -60.0


@register_output("markov")
class Markov(Output):
    r"""Corrects each prediction by what its neighbors in time say about the label.

    A label stays with probability rho and is otherwise drawn again; the model's prediction
    p_i = softmax(z_i) is evidence of it. How long labels stay, how far the model's confidence can
    be trusted and how fast its own preferences change is unknown, so experts with different
    assumptions run side by side. An expert's weight depends on how much better it has predicted
    the model's outputs than expert 0, which ignores the order. So the correction fades where
    labels do not persist, and needs no threshold.

    Means of the predictions, with memories of M samples, M in `memories` and `reference`, start
    as `caution` uniform predictions. They distinguish a model that prefers a class from a stream
    that shows it. With d = 1 - 1/M, W_0 = caution and W_i = d W_(i-1) + 1:

        m = m + ((p_i + floor/C) / (1 + floor) - m) / W_i                      after sample i

    m_M denotes the mean with memory M, r the one of the reference. For expert k = (M, tau, rho):

        prior_k = rho b_k + (1 - rho) m_M                                      predict
        g_k = log(slip + (1 - slip) sum_c prior_k(c) p_i(c) / r(c))            compare
        s_k = patience s_k + g_k - delta log C                                 score, s_0 = 0
        s = s - t + min(max(t, -limit), limit) with t = max_(k > 0) s_k        bound
        b_k = prior_k (p_i / m_M)^tau / sum                                    believe, b_0 = p_i

    r scores all experts alike: expert 0 predicts r and has g_0 = 0. In a shuffled stream the
    expected sum in g is 1, so by Jensen's inequality every other expert loses. delta keeps them
    from gaining by a change of the model's preferences, slip bounds the cost of a single
    prediction, and they start at s_k = -doubt, until the model's preferences are known. Scores are
    remembered for long, since a model's preferences can look like an order for one domain, and
    bounded, so that a stream that changes is still followed.

    The result is q_i = sum_k w_k b_k with w = softmax(s), returned as z_i + log q_i - log p_i: if
    expert 0 has all the weight, the model's logits are returned bit for bit.

    Args:
        mode: "filter" uses b_k and w as they are after sample i, never a later sample. "smooth"
            also uses the later samples of the same call: w as it is after the call, and beliefs
            b_k,i beta_k,i / sum from the backward pass with beta = 1 for the last sample and

                h = (p_i / m_M)^tau beta_k,i
                beta_k,(i-1) = rho h / sum_c m_M(c) h(c) + 1 - rho

            Both are the same for a single sample, and leave the same state. Calls of more than
            256 samples are smoothed in pieces of 256.
    """

    memories: ClassVar[tuple[float, ...]] = (400, 5000)
    reference: ClassVar[float] = 850
    trust: ClassVar[tuple[float, ...]] = (1, 0.35)  # tau
    stay: ClassVar[tuple[float, ...]] = (0.6, 0.9, 0.995)  # rho
    slip: ClassVar[float] = 0.4
    delta: ClassVar[float] = 0.08
    patience: ClassVar[float] = 0.9997
    limit: ClassVar[float] = 200
    floor: ClassVar[float] = 0.02
    caution: ClassVar[float] = 30
    doubt: ClassVar[float] = 20

    def __init__(self, mode: Mode = "smooth") -> None:
        self.mode = mode
        self.reset()

    def reset(self) -> None:
        self._state: _State | None = None

    @property
    def names(self) -> list[str]:
        """The experts: what each assumes, in the order of `weights`."""
        experts = product(self.memories, self.trust, self.stay)
        return ["none", *(f"memory {m:g}, trust {t:g}, stay {s:g}" for m, t, s in experts)]

    @property
    def weights(self) -> Tensor:
        """The weight of each expert after the last call; all on expert 0 before the first."""
        if self._state is None:
            return torch.eye(1, len(self.names))[0]
        return _weights([self._state.scores], self._state.means)[0]

    def shares(self) -> dict[str, float]:
        """The weights of the experts, by the length of the runs that they assume."""
        none, *others = self.weights.tolist()
        lengths = [f"runs of about {round(1 / (1 - rho), 1):g}" for rho in self.stay]
        step = len(self.stay)  # `stay` varies fastest
        return {"no order": none} | {
            length: sum(others[place::step]) for place, length in enumerate(lengths)
        }

    @property
    def reliance(self) -> float:
        return 1.0 - self.weights[0].item()

    def correct(self, logits: Tensor, features: Tensor | None) -> Tensor:
        if len(logits) <= _CHUNK:
            return self._correct(logits) if len(logits) else logits
        return torch.cat([self._correct(chunk) for chunk in torch.split(logits, _CHUNK)])

    def _correct(self, logits: Tensor) -> Tensor:
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        n, classes = wide.shape
        log_p = wide.log_softmax(dim=1).clamp_min(_LOWEST)
        p = log_p.exp()
        state = self._begin(p) if self._state is None else self._state.to(p)
        tau, rho = (_column(values, p.dtype, p.device) for values in (self.trust, self.stay))

        # All that does not depend on beliefs, for all samples at once. Shapes below are of
        # (sample, memory, trust, stay, class).
        counts, means = self._means(state, p)
        m, r = means[:-1, :-1, None], means[:-1, -1]
        evidence = (tau * (log_p[:, None, None] - m.log())).exp()[:, :, :, None]
        surprise, bases = p / r, m[:, :, None]

        belief, beliefs, matches = state.beliefs, [], []
        for i in range(n):
            prior = torch.lerp(bases[i], belief, rho)
            matches.append(prior @ surprise[i])
            joint = prior * evidence[i]
            belief = joint / joint.sum(dim=-1, keepdim=True)
            beliefs.append(belief)

        scores = self._scores(state.scores, torch.stack(matches).flatten(1).tolist(), classes)
        self._state = _State(counts, means[-1], belief, scores[-1])

        believed, weights = torch.stack(beliefs), _weights(scores, p)
        if self.mode == "smooth" and n > 1:
            believed = believed * self._backward(bases, evidence, rho)
            believed = believed / believed.sum(dim=-1, keepdim=True)
            weights = weights[-1:].expand(n, -1)
        sticky = (weights[:, None, 1:] @ believed.flatten(1, 3))[:, 0]
        return logits + (weights[:, :1] + sticky / p).log().to(logits)

    def _begin(self, p: Tensor) -> _State:
        classes, memories = p.shape[1], len(self.memories)
        experts = (memories, len(self.trust), len(self.stay))
        return _State(
            (self.caution,) * (memories + 1),
            p.new_full((memories + 1, classes), 1 / classes),
            p.new_full((*experts, classes), 1 / classes),
            (-self.doubt,) * math.prod(experts),
        )

    def _scores(
        self, score: tuple[float, ...], matches: list[list[float]], classes: int
    ) -> list[tuple[float, ...]]:
        """The scores after each sample; a few numbers each, so plain ones are fastest."""
        scores, cost = [], self.delta * math.log(classes)
        for row in matches:
            free = [
                self.patience * s + math.log(self.slip + (1 - self.slip) * match) - cost
                for s, match in zip(score, row, strict=True)
            ]
            best = max(free)
            excess = best - min(max(best, -self.limit), self.limit)
            score = tuple(s - excess for s in free)
            scores.append(score)
        return scores

    def _means(self, state: _State, p: Tensor) -> tuple[tuple[float, ...], Tensor]:
        """W after the last sample; the means before each and after the last, (n + 1, M, C)."""
        keep = [1 - 1 / memory for memory in (*self.memories, self.reference)]
        counts, shares = state.counts, []
        for _ in range(len(p)):
            counts = tuple(d * count + 1 for d, count in zip(keep, counts, strict=True))
            shares.append([[1 / count] for count in counts])
        means = [state.means]
        floored = (p + self.floor / p.shape[1]) / (1 + self.floor)
        for row, share in zip(floored, p.new_tensor(shares), strict=True):
            means.append(torch.lerp(means[-1], row, share))
        return counts, torch.stack(means)

    def _backward(self, bases: Tensor, evidence: Tensor, rho: Tensor) -> Tensor:
        """What the later samples of the call say about each label, up to a factor per expert."""
        beta = torch.ones_like(bases[0] * evidence[0] * rho)
        betas = [beta]
        for i in range(len(evidence) - 1, 0, -1):
            h = evidence[i] * beta
            drawn = (bases[i] * h).sum(dim=-1, keepdim=True)
            beta = h * (rho / drawn) + (1 - rho)
            betas.append(beta)
        return torch.stack(betas[::-1])

    def __deepcopy__(self, memo: dict[int, Any]) -> Markov:
        return copy(self)  # the state is replaced, never changed: it can be shared

    def state_dict(self) -> dict[str, Any]:
        if self._state is None:
            return {}
        counts, means, beliefs, scores = self._state
        return {
            "counts": list(counts),
            "means": means.clone(),
            "beliefs": beliefs.clone(),
            "scores": list(scores),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state == {}:
            self._state = None
            return
        experts = len(self.memories), len(self.trust), len(self.stay)
        counts, means, beliefs, scores = take(
            state,
            counts=List(Number(1, max(self.memories))),
            means=Array((1 + len(self.memories), None), least=1e-12, below=1.001),
            beliefs=Array((*experts, None), least=0, below=1.001),
            scores=List(Number(-1e6, 1e6)),
        )
        lengths = len(counts), len(scores), beliefs.shape[-1]
        if lengths != (len(means), math.prod(experts), means.shape[-1]):
            raise ValueError("its counts, means, beliefs and scores do not belong together")
        sums = torch.cat([means.sum(dim=-1), beliefs.sum(dim=-1).flatten().to(means)])
        if (sums - 1).abs().max() > 1e-3:
            raise ValueError("its means and beliefs are not probabilities")
        self._state = _State(tuple(counts), means.clone(), beliefs.clone(), tuple(scores))


class _State(NamedTuple):
    """What is remembered of a stream; replaced as a whole, never changed in place."""

    counts: tuple[float, ...]  # W of each memory and of the reference
    means: Tensor  # of the answers, with each memory and the reference
    beliefs: Tensor  # (memory, trust, stay, class)
    scores: tuple[float, ...]  # of all experts but expert 0

    def to(self, like: Tensor) -> _State:
        return _State(self.counts, self.means.to(like), self.beliefs.to(like), self.scores)


@cache
def _column(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Constants as a column; kept, since making them takes longer than using them."""
    return torch.tensor(values, dtype=dtype, device=device)[:, None]


def _weights(scores: list[tuple[float, ...]], like: Tensor) -> Tensor:
    """softmax(s) for each sample, with the score of expert 0, which is 0, in front."""
    return like.new_tensor([(0.0, *score) for score in scores]).softmax(dim=-1)
