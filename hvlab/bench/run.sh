#!/bin/sh
# Runs the jobs one after another and keeps the log of each. All arguments go to kubectl:
#   sh run.sh --namespace=bench
set -eu
cd "$(dirname "$0")"
mkdir -p logs
# A TrainJob that runs has no condition, but the states of its pods.
states='{.status.conditions[?(@.status=="True")].type}{.status.jobsStatus[*].name}'
kubectl "$@" apply --filename=programs.yml
for file in [0-9]*.yml; do
  job=${file#*-}
  job=${job%.yml}
  case $(sed -n 's/^kind: //p' "$file") in
    MPIJob) pods=training.kubeflow.org/job-name=$job log=job/$job-launcher ;;
    TrainJob)
      pods=jobset.sigs.k8s.io/jobset-name=$job
      log=--selector=$pods,batch.kubernetes.io/job-completion-index=0
      ;;
  esac
  trap 'kubectl "$@" delete --ignore-not-found --filename="$file"; exit 130' INT TERM
  kubectl "$@" apply --filename="$file"
  silent=0
  until state=$(kubectl "$@" get --filename="$file" --output="jsonpath=$states") &&
    echo "$state" | grep -Eq 'Succeeded|Complete|Failed'; do
    if [ -n "$state" ]; then silent=0; else silent=$((silent + 1)); fi
    # Five minutes: a job that was just made has no state, and an API server may be away.
    if [ "$silent" -ge 150 ]; then
      echo "$job: Kubernetes reports no state; does its operator run (kubectl get pods -A)?" >&2
      kubectl "$@" delete --ignore-not-found --filename="$file"
      exit 1
    fi
    sleep 2
  done
  { kubectl "$@" logs --tail=-1 "$log" > "logs/$job.log" && [ -s "logs/$job.log" ]; } || {
    echo "$job left no log: its pods did not start in time; logs/$job.log says why" >&2
    sed -n '1s/^# //p' "$file" > "logs/$job.log"
    kubectl "$@" describe pods --selector="$pods" >> "logs/$job.log" || true
    kubectl "$@" get events | grep "$job" >> "logs/$job.log" || true
  }
  kubectl "$@" delete --filename="$file" --wait=true
done
echo "next: hvlab results import $PWD/logs/*.log"
