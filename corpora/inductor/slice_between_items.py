# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: n = sizes(2, 5); x = normal
def program(n: Int64[Tensor, "2"], x: Float32[Tensor, "8 3"]):
    a, b = n.tolist()
    return x[a:b] + 1
