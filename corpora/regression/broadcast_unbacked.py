# ddefuzz program v1
# expect: export/explicit ok
# expect: export-strict/explicit ok
# expect: compile/explicit ok
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0 4"], y: Float32[Tensor, "u0 1"]):
    return x * y + 1
