"""Operators by kind, for those whose kind torch does not tell: names only, without overload and trailing `_`."""

from __future__ import annotations


def _aten(names: str) -> frozenset[str]:
    return frozenset(name if "::" in name else f"aten::{name}" for name in names.split())


# Data is placed, copied, sorted or looked up; nothing is computed with it.
MOVES = _aten("""
    clone copy copy_ contiguous _to_copy to detach alias lift lift_fresh lift_fresh_copy set resize resize_as cat concat
    concatenate stack hstack vstack index index_select select_scatter slice_scatter diagonal_scatter as_strided_scatter
    gather scatter masked_select masked_scatter masked_fill masked_fill_ where take put index_copy index_fill _unsafe_index
    _unsafe_masked_index embedding repeat repeat_interleave tile roll flip fliplr rot90 expand_copy constant_pad_nd
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pad _pad_circular
    reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward
    replication_pad2d_backward replication_pad3d_backward
    sort argsort topk kthvalue msort unique_dim unique_consecutive _unique2 nonzero nonzero_static searchsorted bucketize
    tril triu tril_indices triu_indices diag_embed block_diag combinations pixel_shuffle pixel_unshuffle channel_shuffle
    native_channel_shuffle unfold_copy im2col col2im unfold_backward slice_backward select_backward diagonal_backward
    value_selecting_reduction_backward index_select_backward upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_nearest1d_backward
    upsample_nearest2d_backward upsample_nearest3d_backward _upsample_nearest_exact1d_backward
    _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward max_unpool2d max_unpool3d split unsafe_split
    unsafe_split_with_sizes unsafe_chunk unbind chunk _unsafe_view _reshape_alias _reshape_copy view reshape squeeze unsqueeze
    is_same_size equal _local_scalar_dense item is_nonzero _assert_async _assert_scalar _functional_assert_async
    _pack_padded_sequence _pad_packed_sequence _pack_padded_sequence_backward _nested_tensor_from_mask
    _nested_tensor_from_mask_left_aligned _nested_from_padded nested_to_padded_tensor to_padded_tensor _nested_get_values transpose as_strided _nested_view_from_buffer
    coalesce _coalesce to_sparse _to_sparse to_dense _to_dense sparse_coo_tensor sparse_mask _sparse_coo_tensor_unsafe
    _sparse_coo_tensor_with_dims_and_tensors _coalesced _values _indices values indices crow_indices col_indices ccol_indices
    row_indices to_sparse_csr _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc to_mkldnn mkldnn_reorder_conv2d_weight
    view_as_real view_as_complex _conj _neg_view resolve_conj resolve_neg real imag conj_physical complex
    record_stream pin_memory is_pinned _pin_memory int_repr q_per_channel_scales q_per_channel_zero_points one_hot
    _cudnn_init_dropout_state _linalg_check_errors batch_norm_update_stats _masked_scale bincount histc _is_all_true _is_any_true
    _efficientzerotensor _has_compatible_shallow_copy_type sym_size sym_stride sym_numel sym_storage_offset _version
    _fused_sdp_choice _sparse_broadcast_to _mkldnn_transpose _mkldnn_reshape
    nll_loss_forward nll_loss2d_forward nll_loss nll_loss_backward nll_loss2d_backward
    masked_scatter_backward lu_unpack _nested_tensor_size _nested_tensor_strides _nested_tensor_storage_offsets
    _nested_from_padded_tensor _nested_tensor_from_tensor_list _nested_get_offsets _nested_get_lengths _nested_get_ragged_idx
    _nested_get_min_seqlen _nested_get_max_seqlen _nested_get_jagged_dummy _nested_select_backward
    _jagged_to_padded_dense_forward _padded_dense_to_jagged_forward _lazy_clone q_scale q_zero_point qscheme
    q_per_channel_axis _make_per_tensor_quantized_tensor _make_per_channel_quantized_tensor dense_dim sparse_dim _dimI _dimV
    _nnz is_coalesced unique_dim_consecutive _unique _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo
    sparse_compressed_tensor _sparse_coo_tensor_with_dims _assert_tensor_metadata _sparse_mask_projection _copy_from
    _copy_from_and_resize _stack _functional_assert_scalar sym_constrain_range sym_constrain_range_for_size
    _validate_compressed_sparse_indices mkldnn_reorder_conv3d_weight is_set_to _cudnn_rnn_flatten_weight
    quantized::cat quantized::linear_prepack quantized::conv2d_prepack quantized::dropout quantized::embedding_byte
    quantized::embedding_4bit prims::view_of
""")  # fmt: skip

CREATES = _aten("""
    empty empty_like empty_strided empty_permuted empty_quantized new_empty new_empty_strided zeros zeros_like new_zeros ones
    ones_like new_ones full full_like new_full fill zero arange linspace logspace eye scalar_tensor rand rand_like randn
    randn_like randint randint_like randperm normal normal_functional bernoulli uniform multinomial exponential cauchy
    log_normal geometric random poisson _standard_gamma _sample_dirichlet binomial _empty_affine_quantized
    _empty_per_channel_affine_quantized hann_window hamming_window bartlett_window blackman_window
    kaiser_window vander range _make_dep_token
""")  # fmt: skip

# One operation an element of the result; torch marks most of its own as pointwise, these it does not.
POINTWISE = _aten("""
    add sub rsub mul div eq ne ge gt le lt abs copysign gelu mish xlogy heaviside bitwise_and bitwise_or bitwise_xor
    bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ _add_relu _amp_update_scale affine_grid_generator
    _transform_bias_rescale_qkv floor_divide true_divide remainder fmod pow relu threshold threshold_backward hardtanh_backward hardswish_backward hardsigmoid_backward
    leaky_relu_backward elu_backward gelu_backward silu_backward mish_backward softplus_backward softshrink_backward
    hardshrink_backward log_sigmoid_forward log_sigmoid_backward logit_backward rrelu_with_noise_backward prelu
    _prelu_kernel relu6 hardswish hardtanh clamp clamp_min clamp_max cumsum cumprod cummax cummin _cummax_helper
    _cummin_helper logical_and logical_or logical_not logical_xor quantize_per_tensor quantize_per_channel
    quantize_per_tensor_dynamic dequantize fake_quantize_per_tensor_affine_cachemask
    fake_quantize_per_tensor_affine_cachemask_backward _fake_quantize_per_tensor_affine_cachemask_tensor_qparams
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_channel_affine_cachemask_backward
    _fused_moving_avg_obs_fq_helper polar _amp_foreach_non_finite_check_and_unscale
    _nested_sum_backward _chunk_cat isin logaddexp logaddexp2 special_xlog1py dist
    soft_margin_loss soft_margin_loss_backward multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_forward
    multilabel_margin_loss_backward _ctc_loss_backward margin_ranking_loss cosine_embedding_loss
    quantized::add quantized::add_relu quantized::mul quantized::mul_relu quantized::add_scalar quantized::mul_scalar
    quantized::hardswish quantized::leaky_relu quantized::elu quantized::sigmoid quantized::relu6 quantized::clamp
    quantized::prelu quantized::celu quantized::threshold quantized_decomposed::quantize_per_tensor
    quantized_decomposed::dequantize_per_tensor quantized_decomposed::quantize_per_channel
    quantized_decomposed::dequantize_per_channel
""")  # fmt: skip

# One operation an element of what comes in.
REDUCES = _aten("""
    sum mean prod amax amin max min argmax argmin any all nansum nanmean median nanmedian mode aminmax count_nonzero
    trace logsumexp _sparse_sum _sparse_sum_backward std_mean segment_reduce _segment_reduce_backward
    batch_norm_stats linalg_matrix_norm quantile nanquantile histogram histogramdd _aminmax
""")  # fmt: skip
