"""Estimate how many sites are left, from the sites that were seen once or twice.

Both estimates assume that cases are drawn independently from one distribution. Guided generation and sweeps do not
do that, because they prefer what was rarely reached. For them Good and Turing's probability is too small or too
large. Chao1 is still a lower bound for what these strategies can reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

Z_95 = 1.959963984540054
"""The two-sided 95% quantile of the standard normal distribution."""


class Estimate(msgspec.Struct, frozen=True):
    """For a set of sites: `seen`, seen in exactly one case (`once`), in two (`twice`), and the estimates.

    `next_new` is the probability that the next site reached is a new one; None if none was reached. `total` is
    the estimated number of sites, with its 95% interval from `low` to `high`.
    """

    seen: int
    once: int
    twice: int
    next_new: float | None
    total: float
    low: float
    high: float


def estimate(cases: Iterable[int]) -> Estimate:
    """Estimate from the number of cases that reached each site. Sites that no case reached do not count."""
    counts = [number for number in cases if number > 0]
    seen, once, twice = len(counts), counts.count(1), counts.count(2)
    reached = sum(counts)
    low, high = chao1_interval(seen, once, twice, reached)
    return Estimate(seen, once, twice, good_turing(once, reached), chao1(seen, once, twice), low, high)


def good_turing(once: int, reached: int) -> float | None:
    """f₁ / n, with n all the times that sites were reached: the chance that the next time is at a new site.

    I. J. Good, The population frequencies of species and the estimation of population parameters, Biometrika 40 (1953).
    """
    return once / reached if reached else None


def chao1(seen: int, once: int, twice: int) -> float:
    """S + f₁(f₁ - 1) / (2(f₂ + 1)), the bias-corrected lower bound of the number of species.

    A. Chao, Estimating species richness (in: Encyclopedia of Statistical Sciences, 2005). Counted in cases this is
    Chao2 (Chao 1987) but for the factor (m - 1)/m, m the number of cases, which is 1 within the width of the interval.
    """
    return seen + once * (once - 1) / (2 * (twice + 1))


def chao1_variance(seen: int, once: int, twice: int) -> float:
    """The variance of `chao1`, as EstimateS gives it (R. Colwell, EstimateS user's guide, appendix B).

    With f₂ > 0: f₁(f₁-1)/(2(f₂+1)) + f₁(2f₁-1)²/(4(f₂+1)²) + f₁²f₂(f₁-1)²/(4(f₂+1)⁴); without, with Ŝ the estimate:
    f₁(f₁-1)/2 + f₁(2f₁-1)²/4 - f₁⁴/(4Ŝ).
    """
    if not once:
        return 0.0
    more = twice + 1
    variance = once * (once - 1) / (2 * more) + once * (2 * once - 1) ** 2 / (4 * more**2)
    if twice:
        return variance + once**2 * twice * (once - 1) ** 2 / (4 * more**4)
    return variance - once**4 / (4 * chao1(seen, once, twice))


def chao1_interval(seen: int, once: int, twice: int, reached: int) -> tuple[float, float]:
    """The 95% interval of `chao1`, by the number unseen, T = Ŝ - S, taken as log-normal; n is `reached`.

    From S + T/K to S + TK, with K = exp(1.96 √log(1 + var/T²)). A. Chao, Estimating the population size for
    capture-recapture data with unequal catchability, Biometrics 43 (1987). Where no site was seen once, from S on:
    S/(1-P) ± 1.96 √(SP/(1-P)), with P = exp(-n/S) (EstimateS, equation 14).
    """
    if not seen:
        return 0.0, 0.0
    if not once:
        missed = math.exp(-reached / seen)
        middle, spread = seen / (1 - missed), Z_95 * math.sqrt(seen * missed / (1 - missed))
        return max(float(seen), middle - spread), middle + spread
    unseen = chao1(seen, once, twice) - seen
    if not unseen:
        return float(seen), float(seen)
    factor = math.exp(Z_95 * math.sqrt(math.log1p(max(chao1_variance(seen, once, twice), 0.0) / unseen**2)))
    return seen + unseen / factor, seen + unseen * factor
