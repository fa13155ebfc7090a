// Every constructor of oneDNN's interface, of both its generations. The first one is refused: it is
// given zero descriptors.
#include <kiln/dnnl_rnn.hpp>

#include <cstdio>

using namespace kiln::dnnl;

static void construct()
{
    const memory::desc m;
    const engine e;
    const primitive_attr a;
    const prop_kind p = prop_kind::forward_training;
    const rnn_direction d = rnn_direction::bidirectional_sum;
    const algorithm t = algorithm::eltwise_tanh;
    const rnn_flags f = rnn_flags::diff_weights_overwrite;

    typedef vanilla_rnn_forward vf;
    typedef vanilla_rnn_backward vb;
    const vf::primitive_desc v1(e, p, t, d, m, m, m, m, m, m, m);
    const vf::primitive_desc v2(e, p, t, d, m, m, m, m, m, m, m, 0.0f, a);
    const vf::primitive_desc v3(vf::desc(p, t, d, m, m, m, m, m, m, m, f, 0.0f, 0.0f), e);
    const vb::primitive_desc v4(e, p, t, d, m, m, m, m, m, m, m, m, m, m, m, m, m, m, v1);
    const vb::primitive_desc v5(e, p, t, d, m, m, m, m, m, m, m, m, m, m, m, m, m, m, 0.0f, v1, a);
    const vb::primitive_desc v6(vb::desc(p, t, d, m, m, m, m, m, m, m, m, m, m, m, m, m, m), e, v3);

    typedef lstm_forward lf;
    typedef lstm_backward lb;
    const lf::primitive_desc l1(e, p, d, m, m, m, m, m, m, m, m, m);
    const lf::primitive_desc l2(e, p, d, m, m, m, m, m, m, m, m, m, m, a);
    const lf::primitive_desc l3(e, p, d, m, m, m, m, m, m, m, m, m, m, m, a, true);
    const lf::primitive_desc l4(lf::desc(p, d, m, m, m, m, m, m, m, m, m, f), a, e);
    const lb::primitive_desc l5(e, p, d, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, l1);
    const lb::primitive_desc l6(e, p, d, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m,
                                l2);
    const lb::primitive_desc l7(e, p, d, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m,
                                m, m, l3, a);

    const gru_forward::primitive_desc g1(e, p, d, m, m, m, m, m, m, m);
    const gru_backward::primitive_desc g2(e, p, d, m, m, m, m, m, m, m, m, m, m, m, m, m, m, g1);
    typedef lbr_gru_forward gf;
    const gf::primitive_desc g3(gf::desc(p, d, m, m, m, m, m, m, m), e);
    const lbr_gru_backward::primitive_desc g4(e, p, d, m, m, m, m, m, m, m, m, m, m, m, m, m, m, g3,
                                              a);
    const augru_forward::primitive_desc a1(e, p, d, m, m, m, m, m, m, m, m);
    const augru_backward::primitive_desc a2(e, p, d, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m, m,
                                            a1);
    const lbr_augru_forward::primitive_desc a3(e, p, d, m, m, m, m, m, m, m, m, a);
    const lbr_augru_backward::primitive_desc a4(e, p, d, m, m, m, m, m, m, m, m, m, m, m, m, m, m,
                                                m, m, a3);
    const vf v(v1), w(v2);
    const lf x(l4);
    const lb y(l5), z(l6);
    const primitive others[] = {v3, v4, v5, v6, l7, g2, g4, a2, a4};
    (void)others;
}

int main()
{
    try {
        construct();
    } catch (const error &failure) {
        std::printf("%d %s\n", failure.status, failure.what());
    }
    return 0;
}
