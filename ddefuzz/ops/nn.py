"""Catalogue: layers of networks: normalization, attention, convolution, pooling, padding, resampling."""

from __future__ import annotations

from ddefuzz.ops.spec import FLAG, At, Number, OpSpec, Size, Tensor, choice, op

X = Tensor(1)
BATCH = Size(1, 8)
LENGTH = Size(4, 10)
SEQUENCE = Tensor(shape=(2, 4, "u"))
SEQUENCES = Tensor(shape=("u", 4, 6))
PADDED = Tensor(shape=(2, 4, "u"), others=((2, "u", 5), ("u", 2, 5), ("u", 5)))
IMAGE = Tensor(shape=(1, 2, "u", 6), others=((2, 2, 6, "u"), (2, 2, "u", "u")))
IMAGES = Tensor(shape=("u", 2, 5, 6))
MAPS = Tensor(shape=("u", 2, 5, 6), others=((2, "u", 5, 6), (2, 3, "u", 6)))
VOLUME = Tensor(shape=(1, 2, "u", 4, 4), others=((2, 2, 5, 5, "u"),))
PAD_MODE = choice("reflect", "replicate", "circular")
HEADS = Tensor(shape=(2, 2, 3, 4))
KEYS = Tensor(shape=(2, 2, "u", 4))

NORMALIZATION: tuple[OpSpec, ...] = (
    op("torch.nn.functional.layer_norm(x, (x.shape[-1],))", x=X),
    op("torch.nn.functional.layer_norm(x, x.shape[-1:], w)", x=X, w=Tensor(shape=(At("x", -1),))),
    op("torch.nn.functional.rms_norm(x, (x.shape[-1],))", x=X),
    op("torch.nn.functional.batch_norm(x, None, None, training=True)", u=BATCH, x=Tensor(shape=("u", 3)),
       stops=True),
    op("torch.nn.functional.batch_norm(x, m, v)", u=BATCH, x=SEQUENCES, m=Tensor(shape=(4,)), v=Tensor(shape=(4,))),
    op("torch.nn.functional.instance_norm(x)", u=BATCH, x=SEQUENCES, stops=True),
    op("torch.nn.functional.instance_norm(x)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.functional.instance_norm(x, m, v.exp(), use_input_stats=False)", u=BATCH, x=SEQUENCES,
       m=Tensor(shape=(4,)), v=Tensor(shape=(4,))),
    op("torch.nn.functional.group_norm(x, 2)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.functional.group_norm(x, 2)", u=BATCH, x=SEQUENCES),
    op("torch.nn.functional.local_response_norm(x, 2)", u=BATCH, x=SEQUENCES, stops=True),
    op("torch.native_layer_norm(x, (x.shape[-1],), None, None, 1e-05)", x=X),
)  # fmt: skip

ATTENTION: tuple[OpSpec, ...] = (
    op("torch.nn.functional.scaled_dot_product_attention(q, k, k)", u=BATCH, q=HEADS, k=KEYS, stops=True),
    op("torch.nn.functional.scaled_dot_product_attention(k, k, k, is_causal=c)", u=BATCH, k=KEYS, c=FLAG, stops=True),
    op("torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)", u=BATCH,
       q=Tensor(shape=(2, "u", 3, 4)), k=Tensor(shape=(2, 1, 3, 4))),
    op("torch.nn.functional.scaled_dot_product_attention(q, q, q)", u=BATCH, q=Tensor(shape=("u", 2, 3, 4))),
    op("torch.nn.functional.scaled_dot_product_attention(q, q, q, scale=0.5)", u=BATCH, q=Tensor(shape=("u", 2, 3, 4))),
    op("torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=m)", u=BATCH, q=HEADS, k=KEYS,
       m=Tensor(kind="bool", shape=(3, "u")), stops=True),
    op("torch.nn.functional.scaled_dot_product_attention(x, x, x)", u=BATCH, x=Tensor(shape=("u", 3, 4))),
)  # fmt: skip

CONVOLUTION: tuple[OpSpec, ...] = (
    op("torch.nn.functional.conv1d(x, w)", u=LENGTH, x=SEQUENCE, w=Tensor(shape=(3, 4, 2))),
    op("torch.nn.functional.conv1d(x, w, padding=1, stride=2)", u=BATCH, x=SEQUENCES, w=Tensor(shape=(3, 4, 2))),
    op("torch.nn.functional.conv1d(x, w, padding='same')", u=LENGTH, x=SEQUENCE, w=Tensor(shape=(3, 4, 3))),
    op("torch.nn.functional.conv2d(x, w)", u=LENGTH, x=IMAGE, w=Tensor(shape=(3, 2, 2, 2))),
    op("torch.nn.functional.conv2d(x, w, b, padding=1)", u=BATCH, x=IMAGES, w=Tensor(shape=(3, 2, 2, 2)),
       b=Tensor(shape=(3,))),
    op("torch.nn.functional.conv2d(x, w, groups=2, dilation=2)", u=LENGTH, x=IMAGE, w=Tensor(shape=(2, 1, 2, 2))),
    op("torch.nn.functional.conv3d(x, w)", u=LENGTH, x=VOLUME, w=Tensor(shape=(3, 2, 2, 2, 2))),
    op("torch.nn.functional.conv3d(x, w, b, padding='same')", u=LENGTH, x=VOLUME, w=Tensor(shape=(3, 2, 3, 3, 3)),
       b=Tensor(shape=(3,))),
    op("torch.nn.functional.conv1d(x, w, b)", u=BATCH, x=SEQUENCES, w=Tensor(shape=(3, 4, 2)), b=Tensor(shape=(3,))),
    op("torch.nn.functional.conv_transpose1d(x, w, b)", u=BATCH, x=SEQUENCES, w=Tensor(shape=(4, 2, 2)),
       b=Tensor(shape=(2,))),
    op("torch.nn.functional.conv_transpose2d(x, w, b)", u=LENGTH, x=IMAGE, w=Tensor(shape=(2, 3, 2, 2)),
       b=Tensor(shape=(3,))),
    op("torch.nn.functional.conv_transpose1d(x, w)", u=LENGTH, x=SEQUENCE, w=Tensor(shape=(4, 2, 2))),
    op("torch.nn.functional.conv_transpose2d(x, w, stride=2)", u=LENGTH, x=IMAGE, w=Tensor(shape=(2, 3, 2, 2))),
)  # fmt: skip

POOLING: tuple[OpSpec, ...] = (
    op("torch.nn.functional.avg_pool1d(x, 2)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.functional.avg_pool1d(x, 3, 2, 1, c, f)", u=LENGTH, x=SEQUENCE, c=FLAG, f=FLAG),
    op("torch.nn.functional.avg_pool2d(x, 3, 2, 1, c, f, 2)", u=LENGTH, x=IMAGE, c=FLAG, f=FLAG),
    op("torch.nn.functional.max_pool1d(x, 3, 2, 1, ceil_mode=True)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.functional.max_pool2d(x, 3, 2, 1, ceil_mode=True)", u=LENGTH, x=IMAGE),
    op("torch.nn.functional.avg_pool2d(x, 2, padding=1)", u=LENGTH, x=IMAGE),
    op("torch.nn.functional.avg_pool3d(x, 2)", u=LENGTH, x=VOLUME),
    op("torch.nn.functional.max_pool1d(x, 2)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.functional.max_pool1d(x, 2, stride=1)", u=BATCH, x=SEQUENCES),
    op("torch.nn.functional.max_pool2d(x, 2)", u=LENGTH, x=IMAGE),
    op("torch.nn.functional.max_pool2d(x, 2, ceil_mode=True)", u=BATCH, x=IMAGES),
    op("torch.nn.functional.max_pool2d(x, 2, return_indices=True)", u=LENGTH, x=IMAGE),
    op("torch.nn.functional.max_pool3d(x, 2)", u=LENGTH, x=VOLUME),
    op("torch.nn.functional.lp_pool1d(x, 2, 2)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.functional.lp_pool2d(x, 2, 2)", u=LENGTH, x=IMAGE),
    op("torch.nn.functional.lp_pool1d(x, 2, 3, 2, c)", u=LENGTH, x=SEQUENCE, c=FLAG),
    op("torch.nn.functional.lp_pool2d(x, 2.0, 3, 2, True)", u=LENGTH, x=IMAGE),
    op("torch.nn.functional.adaptive_avg_pool1d(x, k)", u=LENGTH, x=SEQUENCE, k=Number(1, 3)),
    op("torch.nn.functional.adaptive_avg_pool2d(x, (k, 2))", u=LENGTH, x=IMAGE, k=Number(1, 3)),
    op("torch.nn.functional.adaptive_max_pool1d(x, 2)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.functional.adaptive_max_pool2d(x, 2)", u=BATCH, x=MAPS),
    op("torch.nn.functional.adaptive_avg_pool1d(x, n)", u=LENGTH, x=SEQUENCE, n=Size(1, 6)),
)

RESAMPLING: tuple[OpSpec, ...] = (
    op("torch.nn.functional.pad(x, (k, n))", x=X, k=Number(0, 2), n=Size(0, 4)),
    op("torch.nn.functional.pad(x, (1, 1), value=0.5)", x=X),
    op("torch.nn.functional.pad(x, (-1, n))", x=X, n=Size(1, 4)),
    op("torch.nn.functional.pad(x, (a, b), mode=m)", u=LENGTH, x=PADDED, a=Number(-1, 2), b=Number(0, 2), m=PAD_MODE),
    op("torch.nn.functional.pad(x, (1, 0, 0, 1), mode=m)", u=LENGTH, x=IMAGE, m=PAD_MODE),
    op("torch.nn.functional.interpolate(x, scale_factor=2.0)", u=LENGTH, x=SEQUENCE),
    op("torch.nn.functional.interpolate(x, scale_factor=0.5, mode=m)", u=LENGTH, x=IMAGE,
       m=choice("nearest", "bilinear", "area", "bicubic")),
    op("torch.nn.functional.interpolate(x, size=n)", u=LENGTH, x=SEQUENCE, n=Size(1, 12)),
    op("torch.nn.functional.interpolate(x, size=(n, 4), mode='bilinear')", u=BATCH, x=IMAGES, n=Size(1, 8)),
    op("torch.nn.functional.interpolate(x, size=8, mode='linear')", u=BATCH, x=SEQUENCES),
    op("torch.nn.functional.interpolate(x, size=n, mode='linear', align_corners=True)", u=LENGTH, x=SEQUENCE,
       n=Size(1, 12)),
    op("torch.nn.functional.interpolate(x, scale_factor=0.5, mode=m, antialias=True)", u=LENGTH, x=IMAGE,
       m=choice("bilinear", "bicubic")),
    op("torch.nn.functional.interpolate(x, size=(n, 4), mode=m, align_corners=c, antialias=True)", u=BATCH, x=IMAGES,
       n=Size(1, 8), m=choice("bilinear", "bicubic"), c=FLAG),
    op("torch.nn.functional.interpolate(x, scale_factor=1.5, mode='bicubic', recompute_scale_factor=True)", u=LENGTH,
       x=IMAGE),
    op("torch.nn.functional.interpolate(x, scale_factor=1.5, mode='nearest-exact')", u=LENGTH, x=SEQUENCE),
    op("torch.nn.functional.grid_sample(x, g, align_corners=False)", u=BATCH, x=IMAGES,
       g=Tensor(shape=("u", 3, 3, 2))),
    op("torch.nn.functional.grid_sample(x, g, align_corners=c)", u=BATCH, x=Tensor(shape=(1, 2, 4, 4)),
       g=Tensor(shape=(1, "u", 3, 2)), c=FLAG),
    op("torch.nn.functional.grid_sample(x, g, m, p, align_corners=c)", u=LENGTH, x=IMAGE,
       g=Tensor(shape=(At("x", 0), 3, 3, 2)), c=FLAG, m=choice("nearest", "bicubic"), p=choice("border", "reflection")),
    op("torch.nn.functional.grid_sample(x, g, align_corners=c)", u=BATCH, x=Tensor(shape=("u", 2, 3, 4, 4)),
       g=Tensor(shape=("u", 3, 3, 2, 3)), c=FLAG),
    op("torch.nn.functional.affine_grid(t, (t.shape[0], 1, 3, 3), align_corners=c)", u=BATCH,
       t=Tensor(shape=("u", 2, 3)), c=FLAG, stops=True),
    op("torch.nn.functional.glu(x, d)", u=BATCH, x=Tensor(shape=("u", 4)), d=choice(1, -1)),
)  # fmt: skip
