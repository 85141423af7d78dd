# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: n = sizes(2, 3); x = normal
def program(n: Int64[Tensor, "2"], x: Float32[Tensor, "u0 u1=1"]):
    a, b = n.tolist()
    return x.view(a, b) + 1
