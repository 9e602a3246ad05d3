"""Models that between them have every kind of term and of predictor: family and formula."""

MODELS = {
    "gaussian": (
        "gaussian",
        "y ~ mo(h) + (1 + x1 | g) + (1 || gr(h, by=t)) + (1 | mm(g, h)) + s(x2, by=g, k=5) "
        "+ gp(v, k=5) + nn(u1, u2, u3), sigma ~ mo(h) + s(z, k=5) + (1 | g)",
    ),
    "negbinomial": ("negbinomial", "y ~ x1 + t2(x2, v, k=[3, 4]) + s(g, bs='re') "
                    "+ (1 || gr(g, cov='A.csv')) + nn(u1)"),
    "cumulative": ("cumulative", "y ~ x1 + (0 + t | g) + nn(u1)"),
    "categorical": (
        "categorical(bus, car, train)", "y ~ x1 + mo(h) + nn(u1), mutrain ~ x2 + mo(h)"
    ),
    "skew_normal": ("skew_normal", "y ~ x1 + mi(e) + nn(u1), alpha ~ z, e | mi() ~ x1"),
    "von_mises": ("von_mises", "y ~ x1 + (1 + x2 | p | g) + nn(u1), kappa ~ z + (1 | p | g)"),
}  # fmt: skip
