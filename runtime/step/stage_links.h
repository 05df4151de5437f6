// What goes between the stages of a pipeline: activations to the next piece of the model, gradients back.
//
// There is one group of two ranks per direction and pair of neighbouring stages, so a message never waits behind one
// that goes the other way. Both sides know both programs. Receives are posted ahead, in the order in which the peer
// sends. A sent tensor is kept until the peer has it: a message that the peer could only send after it received this
// tensor proves that. So no send ever waits, whatever the programs. A piece's first message in either direction gives
// shapes and types, which stay the same over the run.
// Thread: main. Errors: Error(communication) from the group; Error(internal) for what no program names.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include <drivetrain/mesh.h>
#include <drivetrain/schedule.h>
#include <drivetrain/step_context.h>
#include <drivetrain/toolkit/pipeline/schedule_graph.h>

#include "internal.h"
#include "step/stage_messages.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL StageLinks {
 public:
  // Makes the groups: collective over the stages. `device`: of the tensors. `purpose`: tells several links of one run
  // apart, whose tensors have different shapes.
  StageLinks(const Mesh& mesh, const Schedule& schedule, int64_t micro_batches, const at::Device& device,
             const std::string& purpose = {});

  // The program of a pass begins.
  void begin(Pass pass);
  // What `chunk` of this stage made of `micro` goes on. Does not wait for the peer.
  void send(Direction direction, int64_t micro, int64_t chunk, const Tensors& tensors);
  // What `chunk` of this stage needs for `micro`.
  Tensors receive(Direction direction, int64_t micro, int64_t chunk);
  // Waits until the peers have all that was sent.
  void wait_for_peers();
  // How many messages are in memory here; what HeldMessages tells in advance.
  int64_t held() const;

 private:
  using Place = ScheduleGraph::Place;
  using Key = MessageKey;
  struct Posted {
    Tensors tensors;
    std::vector<WorkPtr> works;
  };
  struct Incoming {
    GroupPtr group;
    ExpectedMessages passes[2];  // by Pass
    const ExpectedMessages* expected = nullptr;
    size_t posted = 0;
    std::map<Key, Posted> waiting;
  };
  struct Sent {
    at::Tensor header;  // undefined where shapes are known
    Tensors tensors;
    std::vector<WorkPtr> works;
  };
  struct Outgoing {
    GroupPtr group;
    std::deque<Sent> sent;
    size_t received = 0;  // by the peer, of this program
  };
  using Edge = std::pair<Direction, int64_t>;  // direction and this stage's chunk

  void connect(const std::string& purpose);
  void release_sent(Outgoing& to, size_t received);
  void post(Incoming& from, const Key& key);
  void post_ahead(Incoming& from, size_t until);
  void announce(Outgoing& to, const Edge& edge, const Tensors& tensors, Sent& sent);
  Tensors announced(Incoming& from);

  const Mesh& mesh_;
  const ScheduleGraph graph_;
  const at::Device device_;
  const int64_t stage_;
  bool ran_[2] = {false, false};          // by Pass
  size_t ahead_ = 0;                      // kReceivesAhead, but 0 in a program's first run
  std::map<int64_t, Incoming> incoming_;  // by stage
  std::map<int64_t, Outgoing> outgoing_;
  std::map<Key, Tensors> local_;   // between two chunks of this stage
  std::map<Edge, Tensors> known_;  // shapes and types of what comes, as tensors without values on the meta device
  std::map<Edge, Tensors> told_;   // of what was sent
};

}  // namespace drivetrain
