# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: x = normal; w = normal
def program(x: Float32[Tensor, "u0 4"], w: Float32[Tensor, "4 3"]):
    return x @ w, torch.nn.functional.linear(x, w.t())
