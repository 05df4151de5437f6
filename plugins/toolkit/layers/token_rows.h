// What experts that read tokens where they lie do with the rows of a token's choices, on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace drivetrain {

// Choices of nobody have no row: their place is R or more.

// dx_t: the rows of token t, summed in the order of its choices.
at::Tensor sum_of_choices(const at::Tensor& dy_RD, const at::Tensor& place_TK);

// dw_tk = a_r . g_r, with the row r of choice k of token t; then both rows are multiplied by w_tk. Of the type of sums.
at::Tensor weigh_rows(const at::Tensor& a_RF, const at::Tensor& g_RF, const at::Tensor& weights_TK,
                      const at::Tensor& place_TK);

}  // namespace drivetrain
