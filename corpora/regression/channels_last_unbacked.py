# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: x = normal; w = normal
def program(x: Float32[Tensor, "u0=3 3 8 8"], w: Float32[Tensor, "6 3 3 3"]):
    moved = x.to(memory_format=torch.channels_last)
    return torch.nn.functional.conv2d(moved, w)
