"""Catalogue: `torch.distributions`, the initialization of tensors, and functions of gradients over whole tensors.

Arguments of distributions are checked unless `validate_args=False` is given: their values decide.
"""

from __future__ import annotations

from ddefuzz.ops.spec import Indices, OpSpec, Size, Tensor, body, op

X = Tensor(1, 2, max_numel=64)
N = Size(1, 8)
ROWS = Tensor(shape=("n", 3))
COLUMN = Tensor(shape=("n",))
D = "torch.distributions"
FREE = "validate_args=False"

DISTRIBUTIONS: tuple[OpSpec, ...] = (
    op(f"{D}.Normal(x, x.exp()).log_prob(x + 1)", x=X),
    op(f"{D}.Normal(x, x.exp(), {FREE}).log_prob(x + 1)", x=X),
    op(f"{D}.Normal(x, x.exp(), {FREE}).rsample()", x=X),
    op(f"{D}.Normal(x, 1.0, {FREE}).rsample((n,))", n=N, x=X),
    op(f"{D}.Normal(x, x.exp(), {FREE}).entropy()", x=X),
    op(f"{D}.Normal(x, x.exp(), {FREE}).cdf(x)", x=X),
    op(f"{D}.Normal(x, 2.0, {FREE}).icdf(x.sigmoid())", x=X),
    op(f"{D}.Independent({D}.Normal(x, x.exp(), {FREE}), 1, {FREE}).log_prob(x)", n=N, x=ROWS),
    op(f"{D}.Categorical(logits=x).log_prob(i)", n=N, x=ROWS, i=Indices(3, shape=("n",))),
    op(f"{D}.Categorical(logits=x, {FREE}).log_prob(i)", n=N, x=ROWS, i=Indices(3, shape=("n",))),
    op(f"{D}.Categorical(x.softmax(-1), {FREE}).entropy()", n=N, x=ROWS),
    op(f"{D}.Categorical(logits=x, {FREE}).sample()", n=N, x=ROWS),
    op(f"{D}.Categorical(logits=x, {FREE}).sample((2,))", n=N, x=ROWS),
    op(f"{D}.OneHotCategorical(logits=x, {FREE}).entropy()", n=N, x=ROWS),
    op(f"{D}.OneHotCategoricalStraightThrough(logits=x, {FREE}).rsample()", n=N, x=ROWS),
    op(f"{D}.Bernoulli(logits=x, {FREE}).log_prob(x.gt(0).float())", x=X),
    op(f"{D}.Bernoulli(x.sigmoid()).entropy()", x=X),
    op(f"{D}.Binomial(n, logits=x, {FREE}).log_prob(x.gt(0).float())", n=N, x=X),
    op(f"{D}.Beta(x.exp(), x.exp() + 1, {FREE}).log_prob(x.sigmoid())", x=X),
    op(f"{D}.Dirichlet(x.exp(), {FREE}).entropy()", n=N, x=ROWS),
    op(f"{D}.Gamma(x.exp(), 1.0, {FREE}).log_prob(x.exp())", x=X),
    op(f"{D}.Laplace(x, x.exp(), {FREE}).log_prob(x)", x=X),
    op(f"{D}.Uniform(x, x + 1, {FREE}).log_prob(x + 0.5)", x=X),
    op(f"{D}.Uniform(x, x + 1).rsample()", x=X),
    op(f"{D}.Poisson(x.exp(), {FREE}).log_prob(x.round().abs())", x=X),
    op(f"{D}.Exponential(x.exp(), {FREE}).entropy()", x=X),
    op(f"{D}.StudentT(x.exp() + 2, {FREE}).log_prob(x)", x=X),
    op(f"{D}.LogNormal(x, 1.0, {FREE}).log_prob(x.exp())", x=X),
    op(f"{D}.HalfNormal(x.exp(), {FREE}).log_prob(x.abs())", x=X),
    op(f"{D}.MultivariateNormal(x, torch.eye(3), {FREE}).log_prob(x)", n=N, x=ROWS),
    op(f"{D}.MultivariateNormal(x[0], scale_tril=torch.eye(3), {FREE}).log_prob(x)", n=N, x=ROWS),
    op(f"{D}.LowRankMultivariateNormal(x, x.unsqueeze(-1), x.exp(), {FREE}).log_prob(x)", n=N, x=ROWS),
    op(f"{D}.MixtureSameFamily({D}.Categorical(logits=x, {FREE}), {D}.Normal(x, 1.0, {FREE}), {FREE}).log_prob(y)",
       n=N, x=ROWS, y=COLUMN),
    op(f"{D}.kl_divergence({D}.Normal(x, 1.0, {FREE}), {D}.Normal(0.0, x.exp(), {FREE}))", x=X),
    op(f"{D}.kl_divergence({D}.Categorical(logits=x, {FREE}), {D}.Categorical(logits=x + 1, {FREE}))", n=N, x=ROWS),
)  # fmt: skip

INITIALIZED: tuple[OpSpec, ...] = (
    op("torch.nn.init.uniform_(x.clone(), -1.0, 1.0).shape[0]", x=X),
    op("torch.nn.init.normal_(x.clone(), 0.0, 0.5).shape[0]", x=X),
    op("torch.nn.init.trunc_normal_(x.clone(), std=0.02).shape[0]", x=X),
    op("torch.nn.init.trunc_normal_(x.clone(), 0.0, 1.0, -n, n).shape[0]", n=N, x=X),
    op("torch.nn.init.constant_(x.clone(), n)", n=N, x=X),
    op("torch.nn.init.ones_(x.clone())", x=X),
    op("torch.nn.init.zeros_(x.clone())", x=X),
    op("torch.nn.init.eye_(x.clone())", n=N, x=ROWS),
    op("torch.nn.init.dirac_(x.clone())", n=N, x=Tensor(shape=("n", 2, 3))),
    op("torch.nn.init.xavier_uniform_(x.clone()).shape[0]", n=N, x=ROWS),
    op("torch.nn.init.xavier_normal_(x.clone()).shape[0]", n=N, x=ROWS),
    op("torch.nn.init.kaiming_uniform_(x.clone()).shape[0]", n=N, x=ROWS),
    op("torch.nn.init.kaiming_normal_(x.clone(), mode='fan_out').shape[0]", n=N, x=ROWS),
    op("torch.nn.init.orthogonal_(x.clone()).shape[0]", n=N, x=ROWS),
    op("torch.nn.utils.parameters_to_vector((x, y))", x=X, y=X),
    op("torch.nn.utils.get_total_norm((x, y))", x=X, y=X),
    op("torch.nn.utils.rnn.unpack_sequence(torch.nn.utils.rnn.pack_sequence((x, y), enforce_sorted=False))[0]",
       n=N, x=ROWS, y=Tensor(shape=(2, 3))),
    op("torch.nn.functional.gumbel_softmax(x, hard=True).sum(-1)", x=X),
    op("torch.conv_tbc(x, torch.ones(2, 3, 2), torch.ones(2), 1)", n=N, x=Tensor(shape=("n", 2, 3))),
    op("torch.sparse.spdiags(x, torch.zeros(1, dtype=torch.int64), (n, n)).to_dense()", n=N, x=Tensor(shape=(1, "n"))),
    op("torch.nn.functional.scaled_dot_product_attention(q, k, k, "
       "torch.nn.attention.bias.causal_lower_right(q.shape[2], k.shape[2]))",
       n=N, q=Tensor(shape=(1, 2, "n", 4)), k=Tensor(shape=(1, 2, 9, 4))),
    op("torch.nn.functional.scaled_dot_product_attention(q, q, q, "
       "torch.nn.attention.bias.causal_upper_left(n, n))", n=N, q=Tensor(shape=(1, 2, "n", 4))),
)  # fmt: skip

JACOBIANS: tuple[OpSpec, ...] = (
    op("torch.autograd.functional.jacobian(lambda a: f, x)", x=Tensor(1, 1, max_numel=8), f=body(a="x"), stops=True),
    op("torch.autograd.functional.vjp(lambda a: f, x)[0]", x=X, f=body(a="x", scalar=True), stops=True),
    op("torch.autograd.functional.hvp(lambda a: f, x, x)[0]", x=X, f=body(a="x", scalar=True), stops=True),
    op("torch.func.vjp(lambda a: f, x)[0]", x=X, f=body(a="x"), stops=True),
)  # fmt: skip
