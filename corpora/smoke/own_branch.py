# ddefuzz program v1
# expect: eager/explicit ok
# expect: export/explicit dde at user code
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    n = x.shape[0]
    return x + 1 if n > 3 else x
