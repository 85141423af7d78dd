# ddefuzz program v1
# expect: export/explicit dde at at::native::diff_helper
# expect: export-strict/explicit dde at at::native::diff_helper
# expect: compile/explicit dde at at::native::diff_helper
# inputs: x = normal
def program(x: Float32[Tensor, "u0 3"]):
    return torch.diff(x, dim=0)
