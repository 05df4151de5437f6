// Where the tables of virtual functions are of classes of the contract that have no code of their own.
#include <drivetrain/context_parallel.h>
#include <drivetrain/data_parallel.h>
#include <drivetrain/evaluation.h>
#include <drivetrain/expert_parallel.h>
#include <drivetrain/log.h>
#include <drivetrain/lr_schedule.h>
#include <drivetrain/model.h>
#include <drivetrain/monitor.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/precision.h>
#include <drivetrain/schedule.h>
#include <drivetrain/services.h>
#include <drivetrain/state.h>
#include <drivetrain/store.h>
#include <drivetrain/tensor_parallel.h>

namespace drivetrain {

ContextParallel::~ContextParallel() = default;
DataParallel::~DataParallel() = default;
Evaluation::~Evaluation() = default;
ExpertParallel::~ExpertParallel() = default;
Log::~Log() = default;
LrSchedule::~LrSchedule() = default;
Model::~Model() = default;
Monitor::~Monitor() = default;
Optimizer::~Optimizer() = default;
Precision::~Precision() = default;
Schedule::~Schedule() = default;
PluginMaker::~PluginMaker() = default;
StateVisitor::~StateVisitor() = default;
Store::~Store() = default;
TensorParallel::~TensorParallel() = default;

}  // namespace drivetrain
