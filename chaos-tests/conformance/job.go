package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"perdure/chaos-tests/wait"
)

// job is what one lane of a part has to do. It reaches the lane in a file.
type job struct {
	suite
	Name    string // of part and lane
	Lane    int
	Runtime string                   // TEST_RUNTIME
	Kill    time.Duration            // how often workers are killed; 0: never
	First   []string                 // tests after which nothing may be left
	Second  []string                 // tests that are run after them
	Took    map[string]time.Duration // by the tests with the model

	dir string // the lane's own
}

// report is what a lane answers with.
type report struct {
	Results map[string]result // by test, subtests included
	Left    []string          // what the tests of First left behind
	Kills   int
}

// long are tests that take long, most of them by waiting. Each list is a lane
// of its own, run beside the others.
var long = [][]string{
	{"TestContainerRestartPolicyAlways", "TestRestartMonitor", "TestRegressionIssue6429"},
	{"TestContainerExecLargeOutputWithTTY"},
}

// lane returns which one a test is run in, by its name or by the id of one of
// its containers, which begins with that.
func lane(id string) int {
	return 1 + slices.IndexFunc(long, func(tests []string) bool {
		return slices.ContainsFunc(tests, func(test string) bool { return strings.HasPrefix(id, test) })
	})
}

// jobs divides a part among lanes. What hung with the model is not run. What
// did not pass with it comes last: it may leave things behind, which tests would
// count. In the model itself that can only be guessed: CRIU's.
func (s *suite) jobs(p, model *part, dir string) []*job {
	jobs := make([]*job, len(long)+1)
	for i := range jobs {
		name := fmt.Sprintf("%s-%d", p.name, i)
		jobs[i] = &job{suite: *s, Name: name, Lane: i, Runtime: p.runtime, Kill: p.kill, dir: filepath.Join(dir, name)}
		jobs[i].Took = map[string]time.Duration{}
	}
	for _, test := range s.tests {
		j := jobs[lane(test)]
		if p != model {
			j.Took[test] = model.Results[test].Took
		}
		switch o := model.Results[test].Outcome; {
		case o == hung && p != model:
		case o == passed || p == model && !strings.HasPrefix(test, "TestCheckpoint"):
			j.First = append(j.First, test)
		default:
			j.Second = append(j.Second, test)
		}
	}
	return slices.DeleteFunc(jobs, func(j *job) bool { return len(j.First)+len(j.Second) == 0 })
}

// limitOf is how long a test may take: what took long with the model may take
// several times as long again.
func (j *job) limitOf(test string) time.Duration { return wait.Limit(j.Limit) + 4*j.Took[test] }

// run starts the lane in its namespaces, and waits for its report. The kernel
// kills all that is in them when this process dies, or ctx ends.
func (j *job) run(ctx context.Context) (report, error) {
	goruntime.LockOSThread() // which the death signal is tied to
	defer goruntime.UnlockOSThread()
	var r report
	if err := os.Mkdir(j.dir, 0o711); err != nil {
		return r, err
	}
	task, err := json.Marshal(j)
	if err != nil {
		return r, err
	}
	if err := os.WriteFile(filepath.Join(j.dir, taskFile), task, 0o600); err != nil {
		return r, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), stageVariable+"="+stageInit, dirVariable+"="+j.dir)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		return r, errors.Join(ctx.Err(), fmt.Errorf("%s: %w: %s", j.Name, err, said.Bytes()))
	}
	answer, err := os.ReadFile(filepath.Join(j.dir, reportFile))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(answer, &r)
}
