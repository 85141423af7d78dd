"""Mixtures of experts, graphs and tables in the styles that users report: counts, groups, and sizes from data."""
import torch
import torch.nn as nn


class Experts(nn.Module):
    """Each expert for the tokens that are routed to it; an expert without tokens is skipped."""

    def __init__(self, experts=2, width=4):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x, route):
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            tokens = torch.where(route == number)[0]
            if tokens.numel() == 0:
                continue
            out = out.index_add(0, tokens, expert(x[tokens]))
        return out


Experts_args = (torch.randn(6, 4, generator=torch.Generator().manual_seed(8)), torch.tensor([0, 1, 1, 0, 1, 0]))


class GroupedExperts(nn.Module):
    """Experts by counts, on tokens that are sorted by expert."""

    def __init__(self, experts=3, width=4):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, width, width, generator=torch.Generator().manual_seed(9)))

    def forward(self, x, counts):
        parts = torch.split(x, counts.tolist())
        return torch.cat([part @ weight for part, weight in zip(parts, self.weight)])


GroupedExperts_args = (torch.randn(9, 4, generator=torch.Generator().manual_seed(10)), torch.tensor([3, 2, 4]))


class Capacity(nn.Module):
    """As many slots as the fullest expert needs, but never less than four."""

    def forward(self, x, route):
        counts = torch.bincount(route, minlength=3)
        capacity = max(4, counts.max().item())
        return x.new_zeros(3, capacity, x.shape[1]).sum((1, 2)) + counts


Capacity_args = (torch.randn(6, 4, generator=torch.Generator().manual_seed(11)), torch.tensor([0, 1, 1, 0, 2, 0]))


def neighbours(features, edges):
    """Messages along the edges of a graph whose self-loops are dropped."""
    edges = edges[:, edges[0] != edges[1]]
    messages = features[edges[0]]
    if messages.shape[0] == 0:
        return features
    return features.index_add(0, edges[1], messages)


neighbours_args = (
    torch.randn(4, 3, generator=torch.Generator().manual_seed(12)),
    torch.tensor([[0, 1, 2, 3], [1, 1, 0, 2]]),
)


def batched(a, b):
    """Rows of two tables that have a label, side by side."""
    left, right = a[a[:, 0] > 0], b[b[:, 0] > 0]
    n = min(left.shape[0], right.shape[0])
    return torch.cat([left[:n], right[:n]], dim=1)


batched_args = (
    torch.tensor([[1.0, 2.0], [-1.0, 3.0], [2.0, 4.0]]),
    torch.tensor([[1.0, 5.0], [3.0, 6.0], [-2.0, 7.0]]),
)


def normalized(x, keep):
    """Standardizes the selected rows if there is more than one."""
    rows = x[keep]
    return (rows - rows.mean(0)) / (rows.std(0) + 1e-6) if rows.shape[0] > 1 else rows


normalized_args = (torch.randn(5, 3, generator=torch.Generator().manual_seed(13)), torch.tensor([1, 1, 0, 1, 0]) > 0)


def paired(x, y):
    """Two selections that are added: they have to have equally many elements."""
    return x[x > 0] + y[y > 0]


paired_args = (torch.tensor([1.0, -1.0, 2.0, -3.0]), torch.tensor([-1.0, 1.0, 2.0, -3.0]))


def folded(x):
    """Rows in groups of the size that a reshape finds out."""
    kept = x[x[:, 0] > 0]
    return kept.reshape(2, -1, 2).sum(1)


folded_args = (torch.tensor([[1.0, 1.0], [-1.0, 1.0], [2.0, 2.0], [3.0, 1.0], [1.0, 4.0]]),)
