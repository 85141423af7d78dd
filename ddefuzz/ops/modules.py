"""Catalogue: modules of `torch.nn` with settings that functions do not have: state, modes, trees, parametrizations.

What is captured has the module as a submodule (`program.modules`): parameters and buffers are inputs of the graph.
"""

from __future__ import annotations

from ddefuzz.ops.nn import BATCH, IMAGE, IMAGES, LENGTH, SEQUENCE, SEQUENCES, VOLUME
from ddefuzz.ops.spec import Indices, OpSpec, Size, Tensor, choice, op

ROWS = Tensor(shape=("u", 4))
STEPS = Tensor(shape=(2, "u", 4))
TOKENS = Indices(6, shape=("u",))
ENCODER = "torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True"
MASK = Tensor(kind="bool", shape=(2, "u"))
STATE = Tensor(shape=(1, "u", 3))
CAUSAL = "torch.nn.Transformer.generate_square_subsequent_mask"

LAYERS: tuple[OpSpec, ...] = (
    op("torch.nn.Linear(4, 3)(x)", u=BATCH, x=ROWS),
    op("torch.nn.Bilinear(4, 4, 3)(x, x)", u=BATCH, x=ROWS),
    op("torch.nn.Embedding(6, 4, padding_idx=0)(i)", u=BATCH, i=TOKENS),
    op("torch.nn.Embedding(6, 4, max_norm=1.0)(i)", u=BATCH, i=TOKENS),
    op("torch.nn.Embedding(6, 4, scale_grad_by_freq=True)(i)", u=BATCH, i=TOKENS),
    op("torch.nn.EmbeddingBag(6, 4, max_norm=1.0, padding_idx=0)(i, torch.zeros(2, dtype=torch.int64))", u=BATCH,
       i=TOKENS),
    op("torch.nn.EmbeddingBag(6, 4, mode=m)(i, torch.zeros(2, dtype=torch.int64))", u=BATCH, i=TOKENS,
       m=choice("sum", "mean", "max")),
    op("torch.nn.EmbeddingBag(6, 4, include_last_offset=True)(i, torch.tensor([0, i.shape[0]]))", u=BATCH, i=TOKENS),
    op("torch.nn.Conv1d(4, 3, 2, padding_mode=m, padding=1)(x)", u=LENGTH, x=SEQUENCE,
       m=choice("zeros", "reflect", "replicate", "circular")),
    op("torch.nn.Conv1d(4, 4, 3, padding='same', groups=2)(x)", u=BATCH, x=SEQUENCES),
    op("torch.nn.Conv2d(2, 3, 2, stride=2)(x)", u=BATCH, x=IMAGES),
    op("torch.nn.Conv2d(2, 3, 2, dilation=2)(x)", u=LENGTH, x=IMAGE),
    op("torch.nn.Conv2d(2, 3, 3, padding=1, padding_mode=m)(x)", u=LENGTH, x=IMAGE,
       m=choice("reflect", "replicate", "circular")),
    op("torch.nn.Conv3d(2, 2, 3, padding=1, padding_mode=m)(x)", u=LENGTH, x=VOLUME,
       m=choice("reflect", "replicate", "circular")),
    op("torch.nn.Conv3d(2, 2, 2)(x)", u=LENGTH, x=VOLUME),
    op("torch.nn.ConvTranspose1d(4, 3, 3, stride=2, output_padding=1)(x)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.ConvTranspose2d(2, 3, 2)(x)", u=BATCH, x=IMAGES),
    op("torch.nn.AdaptiveAvgPool2d((2, None))(x)", u=LENGTH, x=IMAGE),
    op("torch.nn.MaxPool2d(2, ceil_mode=True, padding=1)(x)", u=LENGTH, x=IMAGE),
    op("torch.nn.AvgPool2d(2, count_include_pad=False, padding=1)(x)", u=LENGTH, x=IMAGE),
    op("torch.nn.AvgPool2d(3, 2, 1, ceil_mode=True, divisor_override=2)(x)", u=LENGTH, x=IMAGE),
    op("torch.nn.MaxPool2d(3, 2, 1, return_indices=True, ceil_mode=True)(x)", u=LENGTH, x=IMAGE),
    op("torch.nn.Upsample((7, 4), mode='bicubic', align_corners=True)(x)", u=LENGTH, x=IMAGE),
    op("torch.nn.LPPool1d(2.0, 2, ceil_mode=True)(x)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.Upsample(scale_factor=1.5, mode='bilinear')(x)", u=LENGTH, x=IMAGE),
    op("torch.nn.Unfold(2, padding=1)(x)", u=LENGTH, x=IMAGE),
    op("torch.nn.PixelShuffle(2)(x)", u=BATCH, x=Tensor(shape=("u", 4, 3, 2))),
    op("torch.nn.ChannelShuffle(2)(x)", u=BATCH, x=SEQUENCES),
    op("torch.nn.PReLU(4)(x)", u=BATCH, x=SEQUENCES),
    op("torch.nn.RReLU()(x)", u=BATCH, x=ROWS),
    op("torch.nn.Dropout2d(0.5).eval()(x)", u=BATCH, x=IMAGES),
    op("torch.nn.CosineSimilarity(1)(x, y)", u=BATCH, x=ROWS, y=ROWS),
    op("torch.nn.Unflatten(1, (2, 2))(x)", u=BATCH, x=ROWS),
    op("torch.nn.Flatten(0, 1)(x)", u=BATCH, x=SEQUENCES),
    op("torch.nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2])(x, i)", u=BATCH, x=ROWS, i=TOKENS, stops=True),
    op("torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)(x, i)", u=BATCH, x=Tensor(shape=("u", 6)),
       i=TOKENS),
    op("torch.nn.CTCLoss(zero_infinity=True)(x.log_softmax(2), t, (x.shape[0], x.shape[0]), (1, 1))", u=LENGTH,
       x=Tensor(shape=("u", 2, 6)), t=Indices(6, shape=(2, 1)), stops=True),
    op("torch.nn.CTCLoss(reduction='none')(x.log_softmax(2), t, (5, 5), (1, 1))", x=Tensor(shape=(5, 2, 6)),
       t=Indices(6, shape=(2, 1)), stops=True),
    op("torch.ao.nn.quantized.dynamic.Linear(4, 3)(x)", u=BATCH, x=ROWS),
)  # fmt: skip

STATEFUL: tuple[OpSpec, ...] = (
    op("torch.nn.BatchNorm1d(4)(x)", u=BATCH, x=SEQUENCES, stops=True),
    op("torch.nn.BatchNorm1d(4, momentum=None)(x)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.BatchNorm1d(4, track_running_stats=False).eval()(x)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.BatchNorm1d(4).eval()(x)", u=BATCH, x=ROWS),
    op("torch.nn.BatchNorm2d(2).eval()(x)", u=BATCH, x=IMAGES),
    op("torch.nn.BatchNorm2d(2, affine=False)(x)", u=LENGTH, x=IMAGE),
    op("torch.nn.InstanceNorm1d(4, affine=True)(x)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.InstanceNorm1d(4, track_running_stats=True).eval()(x)", u=BATCH, x=SEQUENCES),
    op("torch.nn.InstanceNorm1d(4, track_running_stats=True)(x)", u=BATCH, x=SEQUENCES, stops=True),
    op("torch.nn.GroupNorm(2, 4)(x)", u=BATCH, x=SEQUENCES),
    op("torch.nn.LayerNorm(4, bias=False)(x)", u=BATCH, x=ROWS),
    op("torch.nn.LayerNorm(4, elementwise_affine=False)(x)", u=BATCH, x=ROWS),
    op("torch.nn.GroupNorm(2, 4, affine=False)(x)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.RMSNorm(4, eps=0.1, elementwise_affine=False)(x)", u=BATCH, x=ROWS),
    op("torch.nn.RMSNorm(4)(x)", u=BATCH, x=ROWS),
    op("torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU())(x)", u=BATCH, x=ROWS,
       stops=True),
    op("torch.nn.Sequential(torch.nn.Conv2d(2, 4, 2), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()(x)", u=BATCH,
       x=IMAGES),
    op("torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 3))(x)", u=BATCH, x=ROWS),
    op("torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 3))(x)", u=BATCH, x=ROWS),
    op("torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(4, 4))(x)", u=BATCH, x=ROWS),
    op("torch.utils.checkpoint.checkpoint(torch.nn.Linear(4, 3), x, use_reentrant=False)", u=BATCH, x=ROWS),
    op("torch.cond(x.sum() > 0, torch.nn.Linear(4, 3), torch.nn.Linear(4, 3, bias=False), (x,))", u=BATCH, x=ROWS),
    op("torch.vmap(lambda a: torch.nn.LayerNorm(4)(a))(x)", u=BATCH, x=ROWS),
)  # fmt: skip

LENGTHS = "torch.arange(1, x.shape[0] + 1).clamp(max=x.shape[1])"
PACKED = f"torch.nn.utils.rnn.pack_padded_sequence(x, {LENGTHS}, batch_first=True, enforce_sorted=False)"
PADDED = Tensor(shape=("u", 5, 4))

SEQUENTIAL: tuple[OpSpec, ...] = (
    op("torch.nn.RNN(4, 3, batch_first=True, nonlinearity='relu')(x)", u=LENGTH, x=STEPS, stops=True),
    op("torch.nn.LSTM(4, 3, batch_first=True, bidirectional=True)(x)", u=BATCH, x=Tensor(shape=("u", 5, 4))),
    op("torch.nn.LSTM(4, 3)(x)", u=LENGTH, x=Tensor(shape=("u", 2, 4)), stops=True),
    op("torch.nn.LSTM(4, 3, batch_first=True)(x, (y, z))", u=BATCH, x=Tensor(shape=("u", 5, 4)), y=STATE, z=STATE),
    op("torch.nn.GRU(4, 3, batch_first=True)(x, y)", u=BATCH, x=Tensor(shape=("u", 5, 4)), y=STATE),
    op("torch.nn.LSTMCell(4, 4)(x, (y, y))", u=BATCH, x=ROWS, y=ROWS),
    op("torch.nn.GRU(4, 3, num_layers=2, batch_first=True).eval()(x)", u=BATCH, x=Tensor(shape=("u", 5, 4))),
    op("torch.nn.LSTMCell(4, 3)(x)", u=BATCH, x=ROWS),
    op("torch.nn.GRUCell(4, 3)(x)", u=BATCH, x=ROWS),
    op("torch.nn.MultiheadAttention(4, 2, batch_first=True)(x, x, x)", u=LENGTH, x=STEPS),
    op("torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()(x, x, x, m, n)", u=LENGTH, x=STEPS, m=MASK,
       n=choice(False, True)),
    op("torch.nn.MultiheadAttention(4, 2, batch_first=True, add_zero_attn=True, add_bias_kv=True)(x, x, x)", u=BATCH,
       x=Tensor(shape=("u", 5, 4))),
    op(f"{ENCODER}).eval()(x)", u=LENGTH, x=STEPS),
    op("torch.nn.MultiheadAttention(4, 2, kdim=3, vdim=2, bias=False)(x, y, z)", u=LENGTH, x=Tensor(shape=(2, 3, 4)),
       y=Tensor(shape=("u", 3, 3)), z=Tensor(shape=("u", 3, 2))),
    op(f"torch.nn.TransformerEncoder({ENCODER}), 1, torch.nn.LayerNorm(4), False).eval()(x, None, m)", u=LENGTH,
       x=STEPS, m=MASK),
    op("torch.nn.Transformer(4, 2, 1, 1, 8, 0.0, norm_first=True, bias=False)(x, y)", u=LENGTH,
       x=Tensor(shape=(3, 2, 4)), y=Tensor(shape=("u", 2, 4))),
    op(f"{ENCODER}).eval()(x, None, m)", u=LENGTH, x=STEPS, m=MASK),
    op(f"{ENCODER}, norm_first=True, dropout=0.0)(x)", u=BATCH, x=Tensor(shape=("u", 5, 4))),
    op(f"torch.nn.TransformerEncoder({ENCODER}), 2).eval()(x, None, m)", u=LENGTH, x=STEPS, m=MASK),
    op(f"torch.nn.TransformerEncoder({ENCODER}), 1).eval()(x, {CAUSAL}(x.shape[1]))", u=LENGTH, x=STEPS),
    op(f"torch.nn.TransformerEncoder({ENCODER}), 1).eval()(x, {CAUSAL}(x.shape[1]), None, True)", u=LENGTH, x=STEPS),
    op("torch.nn.Transformer(4, 2, 1, 1, 8, 0.0, batch_first=True)(x, y)", u=BATCH, x=Tensor(shape=("u", 3, 4)),
       y=Tensor(shape=("u", 5, 4))),
    op(f"torch.nn.Transformer(4, 2, 1, 1, 8, 0.0)(x, y, None, {CAUSAL}(y.shape[0]))", u=LENGTH,
       x=Tensor(shape=(3, 2, 4)), y=Tensor(shape=("u", 2, 4))),
    op("torch.nn.TransformerDecoderLayer(4, 2, 8, 0.0, batch_first=True)(x, y)", u=LENGTH, x=STEPS, n=Size(1, 6),
       y=Tensor(shape=(2, "n", 4))),
    op("torch.nn.utils.rnn.pad_sequence([x, y], batch_first=True)", u=BATCH, x=ROWS, n=Size(1, 6),
       y=Tensor(shape=("n", 4)), stops=True),
    op("torch.nn.utils.rnn.pad_sequence([x, y], padding_value=1.0, padding_side='left')", u=BATCH, x=ROWS, n=Size(1, 6),
       y=Tensor(shape=("n", 4)), stops=True),
    op("torch.nn.utils.rnn.pack_sequence([x, y], enforce_sorted=False)[0]", u=BATCH, x=ROWS, n=Size(1, 6),
       y=Tensor(shape=("n", 4)), stops=True),
    op(f"torch.nn.utils.rnn.unpad_sequence(x, {LENGTHS}, batch_first=True)[0]", u=BATCH, x=PADDED, stops=True),
    op(f"{PACKED}[0]", u=BATCH, x=PADDED, stops=True),
    op(f"torch.nn.utils.rnn.pad_packed_sequence({PACKED}, batch_first=True)[0]", u=BATCH, x=PADDED, stops=True),
    op(f"torch.nn.utils.rnn.pad_packed_sequence({PACKED}, total_length=6)[0]", u=BATCH, x=PADDED, stops=True),
    op(f"torch.nn.utils.rnn.pad_packed_sequence(torch.nn.LSTM(4, 3, batch_first=True)({PACKED})[0])[0]", u=BATCH,
       x=PADDED, stops=True),
)  # fmt: skip
