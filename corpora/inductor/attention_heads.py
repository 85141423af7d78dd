# ddefuzz program v1
# expect: inductor/explicit ok
# inputs: q = normal; k = normal; v = normal
def program(q: Float32[Tensor, "2 u0=3 6 8"], k: Float32[Tensor, "2 u0=3 5 8"], v: Float32[Tensor, "2 u0=3 5 8"]):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)
