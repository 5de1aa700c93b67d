package githubsim

import (
	"context"
	"io"
)

// Executor runs one job of a workflow. githubsim knows nothing of processes; ProcessExecutor does.
type Executor interface {
	// Execute runs the job to its end and gives its conclusion: success, failure or cancelled. When Job.Stop is closed the job
	// is asked to end, as Actions would ask; when ctx ends it is ended at once. Nothing of it may still run on return.
	Execute(ctx context.Context, job Job) (conclusion string, err error)
}

// ExecutorFunc is an Executor of one function.
type ExecutorFunc func(ctx context.Context, job Job) (string, error)

// Execute calls the function.
func (f ExecutorFunc) Execute(ctx context.Context, job Job) (string, error) { return f(ctx, job) }

// Job is one job of a workflow run, with all that Actions would give a runner.
type Job struct {
	ID            int64
	Name          string // its key in the workflow file
	RunID         int64
	RunNumber     int
	Attempt       int
	Owner, Repo   string
	OwnerID       int64
	RepositoryID  int64
	DefaultBranch string
	Ref           string // refs/heads/...
	SHA           string
	WorkflowName  string
	WorkflowPath  string // .github/workflows/...
	Actor         string
	ServerURL     string
	APIURL        string
	Token         string // GITHUB_TOKEN, with the permissions that the file declares
	// How the job asks for an ID token; "" unless the file grants `id-token: write`.
	IDTokenRequestURL, IDTokenRequestToken string

	Inputs  map[string]string
	Secrets map[string]string
	Event   []byte // event.json
	Spec    JobSpec
	Stop    <-chan struct{} // closed when the run is cancelled or the job's time is up
	Log     io.Writer       // what the job prints; masks are the executor's
}
