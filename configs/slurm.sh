#!/bin/bash
# Written by `drivetrain launch --submit`. Edit it as you like; `sbatch FILE` submits it.
#SBATCH --job-name=quickstart
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
# A job that ends with exit 75 is put into the queue again, by the last lines.
#SBATCH --requeue
# Two minutes before the time limit the run is told to save a checkpoint and to end.
#SBATCH --signal=B:USR1@120
# What a cluster may want; one '#' less makes a line count.
##SBATCH --partition=NAME
##SBATCH --time=1-00:00:00
##SBATCH --cpus-per-task=8
##SBATCH --gpus-per-node=4

cd /home/you/runs || exit 8

# SLURM sends SIGTERM to every process of the job, so that it reaches the run by itself; this script stays for
# what comes after. SIGUSR1 reaches this script alone.
trap : TERM
/opt/drivetrain/bin/drivetrain launch --launcher slurm quickstart.json --set communicator.type=tcp &
run=$!
trap 'kill -USR1 $run' USR1
while kill -0 $run 2> /dev/null; do wait $run; done  # a signal ends a wait, not the run
wait $run
code=$?

# 75: the run was told to end and has saved a checkpoint. The same command goes on from it, unless scancel has ended it.
if [ $code = 75 ] && ! scontrol show job "$SLURM_JOB_ID" | grep -q JobState=COMPLETING; then
  echo "job $SLURM_JOB_ID saved a checkpoint and is put into the queue again to go on from it"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
