#include "config.h"
#include "model/balance.h"

void balance_move_bias(float *bias, const uint32_t *counts, double rate, int L, int E) {
    for (int l = 0; l < L; l++) {
        uint64_t sum = 0;
        for (int e = 0; e < E; e++) sum += counts[l * E + e];
        for (int e = 0; e < E; e++) {
            uint64_t count = (uint64_t)counts[l * E + e] * (uint64_t)E;
            bias[l * E + e] += (float)(count < sum ? rate : count > sum ? -rate : 0);
        }
    }
}
