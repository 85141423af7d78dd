# ddefuzz program v1
# expect: export/explicit dde at at::native::chunk
# inputs: mask = trues(4); x = normal
def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "u0 4"]):
    kept = x[mask]
    parts = torch.chunk(kept, 2)
    return parts[0]
