package errand

// JobArgs is what every background job's arguments are: a plain struct with a name. Features define the workers, cmd
// registers them, and store.Tx.Enqueue inserts them in the caller's transaction.
type JobArgs interface{ Kind() string }

// ConsiderIssue asks dispatch to decide about an issue after a delivery.
type ConsiderIssue struct {
	Org      ID `json:"org"`
	Issue    ID `json:"issue"`
	Event    ID `json:"event"`
	Delivery ID `json:"delivery"`
}

// Kind names the job.
func (ConsiderIssue) Kind() string { return "consider_issue" }

// DispatchRun asks dispatch to start the workflow of a queued run, or to find out what became of an unclear attempt.
type DispatchRun struct {
	Org ID `json:"org"`
	Run ID `json:"run"`
}

// Kind names the job.
func (DispatchRun) Kind() string { return "dispatch_run" }

// ReconcileRun asks dispatch to look at a run whose deadline or lease has passed, or which GitHub has spoken of.
type ReconcileRun struct {
	Org ID `json:"org"`
	Run ID `json:"run"`
	// Told: GitHub said that the workflow run is over, so it is asked although the runner has been heard of lately.
	Told bool `json:"told,omitempty"`
}

// Kind names the job.
func (ReconcileRun) Kind() string { return "reconcile_run" }

// CancelWorkflow asks dispatch to cancel the workflow run of a cancelled run at GitHub, as best effort.
type CancelWorkflow struct {
	Org ID `json:"org"`
	Run ID `json:"run"`
}

// Kind names the job.
func (CancelWorkflow) Kind() string { return "cancel_workflow" }

// RefreshInstallation asks GitHub what an installation was granted and which repositories it reaches.
type RefreshInstallation struct {
	Org          ID    `json:"org"`
	Installation int64 `json:"installation"`
}

// Kind names the job.
func (RefreshInstallation) Kind() string { return "refresh_installation" }

// Sweep is the periodic job that finds runs past their deadline, makes tomorrow's partitions and drops old ones.
type Sweep struct{}

// Kind names the job.
func (Sweep) Kind() string { return "sweep" }
