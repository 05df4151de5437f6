#include "wire.h"

#include <algorithm>
#include <cstring>

#include <drivetrain/error.h>

#include "process.h"

namespace drivetrain::mpi {

// A multiple of the piece, so that tests with small pieces also cut what is not summed.
int64_t Wire::most_bytes() const { return std::min<int64_t>(int64_t{1} << 30, 64 * piece_bytes); }

void Wire::send(Requests& requests, const void* data, int64_t bytes, int to, Tag tag) const {
  for (int64_t at = 0; at < bytes; at += most_bytes()) {
    const int n = static_cast<int>(std::min(most_bytes(), bytes - at));
    check_mpi(MPI_Isend(static_cast<const char*>(data) + at, n, MPI_BYTE, to, tag, comm, requests.add(to)),
              "MPI_Isend");
  }
}

void Wire::recv(Requests& requests, void* data, int64_t bytes, int from, Tag tag) const {
  for (int64_t at = 0; at < bytes; at += most_bytes()) {
    const int n = static_cast<int>(std::min(most_bytes(), bytes - at));
    check_mpi(MPI_Irecv(static_cast<char*>(data) + at, n, MPI_BYTE, from, tag, comm, requests.add(from)), "MPI_Irecv");
  }
}

void Packets::post(const Wire& wire, const Call& call, int64_t bytes, const DataFor& data_for) {
  const auto size = static_cast<size_t>(wire.size);
  to_ = std::make_unique_for_overwrite<Packet[]>(size);
  from_ = std::make_unique_for_overwrite<Packet[]>(size);
  // Step by step another peer, so that not all ranks send to the same one.
  for (int step = 1; step < wire.size; ++step) {
    const int from = (wire.me + wire.size - step) % wire.size;
    check_mpi(MPI_Irecv(&from_[from], sizeof(Packet), MPI_BYTE, from, kPackets, wire.comm, requests_.add(from)),
              "MPI_Irecv");
  }
  for (int step = 1; step < wire.size; ++step) {
    const int to = (wire.me + step) % wire.size;
    Packet& packet = to_[to];
    packet.call = call;
    const char* data = data_for && bytes <= kInlineBytes ? data_for(to) : nullptr;
    if (data != nullptr) memcpy(packet.data, data, static_cast<size_t>(bytes));
    const size_t length = sizeof(Call) + (data != nullptr ? static_cast<size_t>(bytes) : 0);
    check_mpi(MPI_Isend(&packet, static_cast<int>(length), MPI_BYTE, to, kPackets, wire.comm, requests_.add(to)),
              "MPI_Isend");
  }
}

void Packets::compare(const Wire& wire, const Call& call, const std::vector<int64_t>& ranks,
                      const std::string& label) const {
  const auto called = [&](int index) -> const Call& { return index == wire.me ? call : from_[index].call; };
  for (int i = 1; i < wire.size; ++i)
    if (!called(i).fits(called(0)))
      throw fail(ErrorCode::communication, "ranks disagree about call #", call.number, " of group \"", label,
                 "\": rank ", ranks.front(), " called ", called(0).text(), ", rank ", ranks[static_cast<size_t>(i)],
                 " called ", called(i).text());
}

}  // namespace drivetrain::mpi
