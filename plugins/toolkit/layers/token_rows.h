// What experts that read tokens where they lie do with the rows of a token's choices, on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <drivetrain/toolkit/layers/mixture.h>

namespace drivetrain {

// dw_tk = a_r . g_r, with the row r of choice k of token t; then both rows are multiplied by w_tk. Of the type of sums.
// Choices of nobody have no row: their place is R or more.
at::Tensor weigh_rows(const at::Tensor& a_RF, const at::Tensor& g_RF, const at::Tensor& weights_TK,
                      const at::Tensor& place_TK);

// int64 [E, P]: the rows of each expert that are of the first tokens[0] tokens, of the next tokens[1], ...
at::Tensor counts_of_parts(const SortedRows& rows, const std::vector<int64_t>& tokens);

}  // namespace drivetrain
