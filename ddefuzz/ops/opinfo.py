"""Names of the functions and methods that samples of torch's OpInfo call and that the other groups do not have.

Their out= and in-place forms are included. Which of them exist depends on the torch version (`tests/ops` compares).
None of them reads or writes files, or runs code that it is given.
"""

from __future__ import annotations

from typing import Final

_NAMES: Final[dict[str, str]] = {
    "torch": """
        _chunk_cat _native_batch_norm_legit _segment_reduce _unsafe_masked_index
        _unsafe_masked_index_put_accumulate abs acos acosh adaptive_avg_pool1d add addbmm addcdiv addcmul addmm
        addmv addr alias_copy all allclose amax amin aminmax angle any arange argmax argmin argsort argwhere
        as_strided as_strided_copy as_strided_scatter asin asinh atan atan2 atanh atleast_1d atleast_2d
        atleast_3d avg_pool1d baddbmm bernoulli bilinear bincount bitwise_and bitwise_left_shift bitwise_not
        bitwise_or bitwise_right_shift bitwise_xor block_diag bmm broadcast_shapes broadcast_tensors
        broadcast_to bucketize cartesian_prod cat cdist ceil channel_shuffle cholesky cholesky_inverse
        cholesky_solve chunk clamp clamp_max clamp_min clone column_stack combinations complex conj
        conj_physical constant_pad_nd conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
        copysign corrcoef cos cosh cosine_similarity count_nonzero cov cross cummax cummin cumprod cumsum
        cumulative_trapezoid deg2rad diag diag_embed diagflat diagonal diagonal_copy diagonal_scatter diff
        digamma dist div dot dsmm dsplit dstack einsum empty empty_like empty_permuted empty_strided eq equal
        erf erfc erfinv exp exp2 expand_copy expm1 eye fill flatten flip fliplr flipud float_power floor
        floor_divide fmax fmin fmod frac frexp full full_like gather gcd ge geqrf gradient grid_sampler_2d
        grid_sampler_3d gt hardshrink hash_tensor heaviside histc histogram histogramdd hsplit hstack hypot i0
        igamma igammac imag index_add index_copy index_fill index_put index_reduce index_select inner isclose
        isfinite isin isinf isnan isneginf isposinf isreal istft kron kthvalue lcm ldexp le lerp lgamma linspace
        log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not
        logical_or logical_xor logit logspace logsumexp lt lu lu_solve lu_unpack masked_fill masked_scatter
        masked_select matmul matrix_exp max maximum mean median meshgrid min minimum mode movedim msort mul
        multinomial mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow narrow_copy
        native_batch_norm native_group_norm native_layer_norm ne neg nextafter nonzero nonzero_static norm
        normal ones ones_like ormqr outer pairwise_distance pca_lowrank pdist permute permute_copy pinverse
        pixel_shuffle pixel_unshuffle polar polygamma positive pow prelu prod put qr quantile rad2deg randint
        randint_like randn randn_like ravel real reciprocal remainder renorm repeat_interleave reshape
        resize_as_ resolve_conj resolve_neg roll rot90 round rsqrt rsub scalar_tensor scatter scatter_add
        scatter_reduce searchsorted select select_scatter sgn sigmoid sign signbit sin sinc sinh slice_scatter
        softmax sort split split_with_sizes split_with_sizes_copy sqrt square squeeze squeeze_copy stack std
        std_mean stft sub sum svd svd_lowrank t t_copy take take_along_dim tan tanh tensor_split tensordot tile
        topk trace transpose transpose_copy trapezoid trapz triangular_solve tril tril_indices triu triu_indices
        true_divide trunc unbind unbind_copy unflatten unfold_copy unique unique_consecutive unravel_index
        unsafe_chunk unsafe_split unsqueeze unsqueeze_copy var var_mean vdot view_as_complex view_as_real
        view_copy vsplit vstack where xlogy zero_ zeros zeros_like
    """,
    "torch.autograd": """
        grad
    """,
    "torch.fft": """
        fft fft2 fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft irfft2
        irfftn rfft rfft2 rfftn
    """,
    "torch.linalg": """
        cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product inv inv_ex
        ldl_factor ldl_factor_ex ldl_solve lstsq lu lu_factor lu_factor_ex lu_solve matrix_norm matrix_power
        matrix_rank multi_dot norm pinv qr slogdet solve solve_ex solve_triangular svd svdvals tensorinv
        tensorsolve vander vecdot vector_norm
    """,
    "torch.masked": """
        amax amin argmax argmin cumprod cumsum log_softmax logaddexp logsumexp mean median norm normalize prod
        softmax softmin std sum var
    """,
    "torch.nn.functional": """
        adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
        alpha_dropout avg_pool2d avg_pool3d batch_norm binary_cross_entropy binary_cross_entropy_with_logits
        celu cosine_embedding_loss cross_entropy ctc_loss dropout dropout2d dropout3d elu embedding
        embedding_bag feature_alpha_dropout fractional_max_pool2d fractional_max_pool2d_with_indices
        fractional_max_pool3d fractional_max_pool3d_with_indices gaussian_nll_loss gelu glu grid_sample
        group_norm hardsigmoid hardswish hardtanh hinge_embedding_loss huber_loss instance_norm interpolate
        kl_div l1_loss layer_norm leaky_relu linear linear_cross_entropy local_response_norm logsigmoid
        margin_ranking_loss max_pool1d max_pool2d max_pool2d_with_indices max_pool3d max_unpool1d max_unpool2d
        max_unpool3d mish mse_loss multi_head_attention_forward multi_margin_loss multilabel_margin_loss
        multilabel_soft_margin_loss nll_loss normalize one_hot pad poisson_nll_loss relu relu6 rms_norm rrelu
        scaled_dot_product_attention selu silu smooth_l1_loss soft_margin_loss softmin softplus softshrink
        softsign tanhshrink threshold triplet_margin_loss unfold upsample_bilinear upsample_nearest
    """,
    "torch.ops": """
        aten._batch_norm_with_update aten._safe_softmax.default aten._softmax_backward_data
        aten._upsample_bilinear2d_aa aten.max_pool2d_with_indices_backward.default
        aten.native_dropout_backward.default aten.slice.Tensor
    """,
    "torch.signal.windows": """
        bartlett blackman cosine exponential gaussian general_cosine general_hamming hamming hann kaiser nuttall
    """,
    "torch.special": """
        airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u
        chebyshev_polynomial_v chebyshev_polynomial_w entr erfcx hermite_polynomial_h hermite_polynomial_he i0e
        i1 i1e laguerre_polynomial_l legendre_polynomial_p log_ndtr modified_bessel_i0 modified_bessel_i1
        modified_bessel_k0 modified_bessel_k1 ndtr ndtri polygamma scaled_modified_bessel_k0
        scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
        shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w spherical_bessel_j0 xlog1py zeta
    """,
    "Tensor": """
        __abs__ __getitem__ __neg__ __pos__ __radd__ __rand__ __rdiv__ __rmatmul__ __rmod__ __rmul__ __ror__
        __rpow__ __rsub__ __rxor__ abs_ acos acos_ acosh acosh_ add add_ addbmm addbmm_ addcdiv addcdiv_ addcmul
        addcmul_ addmm addmm_ addmv addmv_ addr addr_ all allclose amax amin aminmax angle any argmax argmin
        argsort argwhere as_strided as_strided_ as_strided_scatter asin asin_ asinh asinh_ atan atan2 atan2_
        atan_ atanh atanh_ baddbmm baddbmm_ bfloat16 bincount bitwise_and bitwise_and_ bitwise_left_shift
        bitwise_left_shift_ bitwise_not bitwise_not_ bitwise_or bitwise_or_ bitwise_right_shift
        bitwise_right_shift_ bitwise_xor bitwise_xor_ bmm bool broadcast_to byte cauchy_ cdouble ceil ceil_
        cfloat chalf char cholesky cholesky_inverse cholesky_solve chunk clamp clamp_ clamp_max clamp_max_
        clamp_min clamp_min_ clone conj conj_physical conj_physical_ contiguous copysign copysign_ corrcoef cos
        cos_ cosh cosh_ count_nonzero cov cross cummax cummin cumprod cumprod_ cumsum cumsum_ deg2rad deg2rad_
        diag diag_embed diagflat diagonal diagonal_scatter diff digamma digamma_ dist div div_ dot double dsplit
        eq eq_ equal erf erf_ erfc erfc_ erfinv erfinv_ exp exp2 exp2_ exp_ expand expand_as expm1 expm1_
        exponential_ fill_ flatten flip fliplr flipud float float_power float_power_ floor floor_ floor_divide
        floor_divide_ fmax fmin fmod fmod_ frac frac_ frexp gather gcd gcd_ ge ge_ geometric_ geqrf gt gt_ half
        hash_tensor heaviside heaviside_ histc histogram hsplit hypot hypot_ i0 i0_ igamma igamma_ igammac
        igammac_ index_add index_add_ index_copy index_copy_ index_fill index_fill_ index_put index_put_
        index_reduce index_reduce_ index_select inner int isclose isfinite isinf isnan isneginf isposinf isreal
        istft kron kthvalue lcm lcm_ ldexp ldexp_ le le_ lerp lerp_ lgamma lgamma_ log log10 log10_ log1p log1p_
        log2 log2_ log_ log_normal_ log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and
        logical_and_ logical_not logical_not_ logical_or logical_or_ logical_xor logical_xor_ logit logit_
        logsumexp long lt lt_ lu lu_solve masked_fill masked_fill_ masked_scatter masked_scatter_ masked_select
        matmul matrix_exp max maximum mean median min minimum mm mode movedim msort mul mul_ mv mvlgamma
        mvlgamma_ nan_to_num nan_to_num_ nanmean nanmedian nanquantile nansum narrow narrow_copy ne ne_ neg_
        new_empty new_empty_strided new_full new_ones new_zeros nextafter nextafter_ nonzero nonzero_static norm
        normal_ ormqr outer permute pinverse polygamma polygamma_ pow pow_ prod put put_ qr quantile rad2deg
        rad2deg_ ravel reciprocal reciprocal_ remainder remainder_ renorm renorm_ repeat repeat_interleave
        reshape reshape_as resize_ resize_as_ resolve_conj resolve_neg roll rot90 round round_ rsqrt rsqrt_
        scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ select select_scatter sgn sgn_
        short sigmoid sigmoid_ sign sign_ signbit sin sin_ sinc sinc_ sinh sinh_ slice_scatter softmax sort
        split split_with_sizes sqrt sqrt_ square square_ squeeze squeeze_ std stft sub sub_ sum sum_to_size svd
        t t_ take take_along_dim tan tan_ tanh tanh_ tensor_split tile to to_sparse topk trace transpose
        transpose_ triangular_solve tril tril_ triu triu_ true_divide true_divide_ trunc trunc_ unbind unflatten
        unfold uniform_ unique unique_consecutive unsafe_chunk unsafe_split unsqueeze unsqueeze_ var vdot view
        view_as vsplit where xlogy xlogy_ zero_
    """,
}

_OUT: Final[dict[str, str]] = {
    "torch": """
        _chunk_cat _native_batch_norm_legit abs acos acosh add addbmm addcdiv addcmul addmm addmv addr
        alias_copy all amax amin aminmax angle any arange argmax argmin as_strided_copy asin asinh atan atan2
        atanh baddbmm bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm
        bucketize cat ceil cholesky cholesky_inverse cholesky_solve clamp clamp_max clamp_min column_stack
        complex conj_physical copysign cos cosh cross cummax cummin cumprod cumsum deg2rad diag diagonal_copy
        diff digamma div dot dsmm dstack empty eq equal erf erfc erfinv exp exp2 expand_copy expm1 eye
        float_power floor floor_divide fmax fmin fmod frac frexp full gather gcd ge geqrf gt hardshrink
        hash_tensor heaviside histc histogram histogramdd hstack hypot i0 igamma igammac index_add index_copy
        index_reduce index_select inner isin isneginf isposinf kron kthvalue lcm ldexp le lerp lgamma linspace
        log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or
        logical_xor logit logspace logsumexp lt lu lu_solve lu_unpack masked_select matmul max maximum mean min
        minimum mode msort mul mv mvlgamma nan_to_num nanmean nanquantile nansum narrow_copy native_batch_norm
        ne neg nextafter nonzero norm ones ormqr outer permute_copy polar pow qr quantile rad2deg reciprocal
        remainder renorm round rsqrt scatter scatter_add scatter_reduce searchsorted sgn sigmoid sign signbit
        sin sinc sinh slice_scatter softmax sort split_with_sizes_copy sqrt square squeeze_copy stack std sub
        svd t_copy take take_along_dim tan tanh tensordot topk transpose_copy triangular_solve tril triu
        true_divide trunc unbind_copy unfold_copy unsqueeze_copy var vdot view_copy vstack xlogy zeros
    """,
    "torch.fft": """
        fft fft2 fftn hfft hfft2 hfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn irfft irfft2 irfftn rfft rfft2 rfftn
    """,
    "torch.linalg": """
        cholesky cholesky_ex cond cross det eig eigh eigvals eigvalsh householder_product inv inv_ex ldl_factor
        ldl_factor_ex ldl_solve lstsq lu lu_factor lu_factor_ex lu_solve matrix_norm matrix_power matrix_rank
        multi_dot norm pinv qr slogdet solve solve_ex solve_triangular svd svdvals tensorinv tensorsolve vecdot
        vector_norm
    """,
    "torch.nn.functional": """
        avg_pool2d avg_pool3d gelu linear logsigmoid normalize softplus softshrink
    """,
    "torch.ops.aten": """
        _batch_norm_with_update
    """,
    "torch.special": """
        airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u
        chebyshev_polynomial_v chebyshev_polynomial_w entr erfcx hermite_polynomial_h hermite_polynomial_he i0e
        i1 i1e laguerre_polynomial_l legendre_polynomial_p log_ndtr modified_bessel_i0 modified_bessel_i1
        modified_bessel_k0 modified_bessel_k1 ndtr ndtri scaled_modified_bessel_k0 scaled_modified_bessel_k1
        shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
        shifted_chebyshev_polynomial_w spherical_bessel_j0 xlog1py zeta
    """,
}


def _dotted(table: dict[str, str]) -> frozenset[str]:
    return frozenset(f"{owner}.{name}" for owner, names in table.items() for name in names.split())


OPINFO: Final = _dotted(_NAMES)
"""The qualified names: `torch.linalg.inv`, `Tensor.add_`."""

TAKES_OUT: Final = _dotted(_OUT)
"""The functions that accept `out=`."""
