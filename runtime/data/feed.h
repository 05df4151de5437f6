// Reads micro-batches ahead on its own thread, in the order the run will ask for them, and checks tokens on the way.
// `next` on the main thread; an error of the loader thread is thrown there, with the step it belongs to.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/dataset.h>
#include <drivetrain/state.h>

namespace drivetrain {

// How the run walks through the data: train steps [first, last], each followed by an evaluation where one is due.
struct FeedPlan {
  int64_t first_step = 1, last_step = 0;
  int64_t train_batch_size = 0, micro_batch_size = 0, accumulation = 0;
  int64_t dp_rank = 0, dp_size = 1;
  int64_t eval_interval = 0, eval_iters = 0;  // 0: no evaluation
  int64_t vocab_size = 0;
  std::string dataset;  // its id, for messages
  int64_t seq_length = 0;
  bool documents = false;  // DatasetFacts::documents

  bool eval_due(int64_t step) const {
    return eval_interval > 0 && eval_iters > 0 && (step % eval_interval == 0 || step == last_step);
  }
};

class Feed {
 public:
  Feed(std::shared_ptr<Dataset> dataset, const FeedPlan& plan);
  ~Feed();  // stops the thread
  // The next micro-batch of the walk: accumulation 0, 1, ... of a step, then those of its evaluation batches.
  Batch next();
  // Where the rows of the micro-batch come from that `next` gave last, if no label of it counts and the dataset knows.
  const std::string& origin_without_labels() const;
  // The dataset's state as it was when the last step whose batches `next` has all given was read: what follows is read
  // again. Before the first such step, and for a dataset that shows nothing: nothing is shown.
  void state(StateVisitor& visitor);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace drivetrain
