package errand

// RunState is where a run is in its life. The table of allowed moves is transitions/policies/run.yaml.
type RunState string

// The states of a run; the last six are ends.
const (
	Queued      RunState = "queued"
	Dispatching RunState = "dispatching"
	Dispatched  RunState = "dispatched"
	Running     RunState = "running"
	Checking    RunState = "checking"
	Publishing  RunState = "publishing"

	PROpened  RunState = "pr_opened"
	NoFix     RunState = "no_fix"
	Rejected  RunState = "rejected"
	Failed    RunState = "failed"
	TimedOut  RunState = "timed_out"
	Cancelled RunState = "cancelled"
)

// Ended tells whether the state is an end: nothing leads out of it.
func (s RunState) Ended() bool {
	switch s {
	case PROpened, NoFix, Rejected, Failed, TimedOut, Cancelled:
		return true
	default:
		return false
	}
}

// Trigger is what moves a run from one state to another.
type Trigger string

// The triggers of the run's table (DESIGN: the run's states).
const (
	TriggerCreated         Trigger = "created"
	TriggerDispatchStarted Trigger = "dispatch_started"
	TriggerGitHubAccepted  Trigger = "github_accepted"
	TriggerGitHubRefused   Trigger = "github_refused"
	TriggerNothingFound    Trigger = "nothing_found"
	TriggerRunStarted      Trigger = "run_started"
	TriggerNeverStarted    Trigger = "never_started"
	TriggerGitHubEnded     Trigger = "github_ended"
	TriggerProposal        Trigger = "proposal"
	TriggerNothingToFix    Trigger = "nothing_to_fix"
	TriggerRunnerFailed    Trigger = "runner_failed"
	TriggerAdmitted        Trigger = "admitted"
	TriggerCorrection      Trigger = "correction"
	TriggerClaimRejected   Trigger = "claim_rejected"
	TriggerPathBlocked     Trigger = "path_blocked"
	TriggerPullRequest     Trigger = "pull_request"
	TriggerPublishFailed   Trigger = "publish_failed"
	TriggerDeadline        Trigger = "deadline"
	TriggerCancel          Trigger = "cancel"
)

// Reason says why a run ended as it did: a closed list, shown to people as a sentence (Reason.Sentence).
type Reason string

// The reasons of ends.
const (
	ReasonNone              Reason = ""
	ReasonNotDispatched     Reason = "not_dispatched"
	ReasonWorkflowMissing   Reason = "workflow_missing"
	ReasonWorkflowDisabled  Reason = "workflow_disabled"
	ReasonWorkflowTooOld    Reason = "workflow_too_old"
	ReasonNoTrigger         Reason = "no_trigger"
	ReasonRefMissing        Reason = "ref_missing"
	ReasonRepositoryGone    Reason = "repository_gone"
	ReasonRepositoryArchive Reason = "repository_archived"
	ReasonBlockedLegal      Reason = "repository_blocked"
	ReasonNotPermitted      Reason = "not_permitted"
	ReasonOverGranted       Reason = "over_granted"
	ReasonUninstalled       Reason = "app_uninstalled"
	ReasonSuspended         Reason = "installation_suspended"
	ReasonGitHubRefused     Reason = "github_refused"
	ReasonNothingFound      Reason = "dispatch_not_found"
	ReasonNeverStarted      Reason = "never_started"
	ReasonStartupFailure    Reason = "startup_failure"
	ReasonWorkflowFailed    Reason = "workflow_failed"
	ReasonWorkflowCancelled Reason = "workflow_cancelled"
	ReasonWorkflowDeleted   Reason = "workflow_run_deleted"
	ReasonSilent            Reason = "runner_silent"
	ReasonDeadline          Reason = "deadline"
	ReasonTicketReused      Reason = "ticket_reused"
	ReasonWrongRepository   Reason = "wrong_repository"
	ReasonLimits            Reason = "limits_reached"
	ReasonProviderAuth      Reason = "provider_auth"
	ReasonProviderQuota     Reason = "provider_quota"
	ReasonProviderError     Reason = "provider_error"
	ReasonAgentError        Reason = "agent_error"
	ReasonNothingToFix      Reason = "nothing_to_fix"
	ReasonClaimRejected     Reason = "claim_rejected"
	ReasonBlockedBy         Reason = "blocked_by"
	ReasonPRNotPermitted    Reason = "pr_not_permitted"
	ReasonPushRefused       Reason = "push_refused"
	ReasonPublishFailed     Reason = "publish_failed"
	ReasonCancelledByPerson Reason = "cancelled_by_person"
)

var reasonSentences = map[Reason]string{
	ReasonNotDispatched:     "The run could not be started in time. The issue may run again with its next event.",
	ReasonWorkflowMissing:   "The workflow file is not on the repository's default branch. Add it (docs/workflows/errand.yml).",
	ReasonWorkflowDisabled:  "The workflow is disabled in the repository's Actions page. Enable it there.",
	ReasonWorkflowTooOld:    "The workflow file does not take the inputs `run` and `ticket`. Replace it with the current docs/workflows/errand.yml.",
	ReasonNoTrigger:         "The workflow file has no `workflow_dispatch` trigger at that ref. Replace it with docs/workflows/errand.yml.",
	ReasonRefMissing:        "The branch that the mapping names does not exist. Correct the mapping's ref.",
	ReasonRepositoryGone:    "The repository is gone or no longer part of the GitHub App's installation.",
	ReasonRepositoryArchive: "The repository is archived, so no workflow can run in it.",
	ReasonBlockedLegal:      "GitHub has blocked access to the repository for legal reasons.",
	ReasonNotPermitted:      "GitHub says the App may not start workflows there. Check that the installation grants Actions: write.",
	ReasonOverGranted:       "The GitHub App's installation grants more than Actions: write and Metadata: read, so Errand does not use it. Take the rest from the App.",
	ReasonUninstalled:       "The GitHub App is not installed there any more. Install it again, and connect it.",
	ReasonSuspended:         "The GitHub App's installation is suspended. Its owner can resume it in GitHub's settings.",
	ReasonGitHubRefused:     "GitHub refused to start the workflow. Its own words are in the run's history.",
	ReasonNothingFound:      "GitHub did not say whether the workflow started, and no workflow run with this run's mark appeared.",
	ReasonNeverStarted:      "The workflow was accepted and its runner never reported. Look at the workflow run's page.",
	ReasonStartupFailure:    "GitHub could not start the workflow (startup failure). Look at the workflow run's page.",
	ReasonWorkflowFailed:    "The workflow failed before the runner reported an end. Look at the workflow run's page.",
	ReasonWorkflowCancelled: "The workflow was cancelled on GitHub.",
	ReasonWorkflowDeleted:   "Somebody deleted the workflow run on GitHub.",
	ReasonSilent:            "The runner fell silent, and GitHub says the workflow is over.",
	ReasonDeadline:          "The run passed its time limit.",
	ReasonTicketReused:      "The one-time ticket was used a second time. Start a new run from Errand; a re-run on GitHub's page cannot work.",
	ReasonWrongRepository:   "None of the stack's files is in this repository. Correct the mapping.",
	ReasonLimits:            "The agent reached its limit of tool calls, time or tokens.",
	ReasonProviderAuth:      "The AI provider refused the key. Replace the secret in the repository's settings.",
	ReasonProviderQuota:     "The AI provider's quota or credit is used up.",
	ReasonProviderError:     "The AI provider kept failing within the time that remained.",
	ReasonAgentError:        "The runner met an error of its own. Look at the job's summary.",
	ReasonNothingToFix:      "The agent found nothing that it should change.",
	ReasonClaimRejected:     "What the agent claimed and what it changed did not agree, or it changed something protected.",
	ReasonBlockedBy:         "Another verified change to the same path is still open.",
	ReasonPRNotPermitted:    "The branch was pushed, but GitHub Actions may not create pull requests here. Allow it in Settings, Actions, General, or give the action a `pr-token`.",
	ReasonPushRefused:       "GitHub refused the push. Its own words are in the job's summary.",
	ReasonPublishFailed:     "The pull request could not be opened. GitHub's own words are in the job's summary.",
	ReasonCancelledByPerson: "Somebody cancelled it.",
}

// Sentence says the reason to a person, with what to do about it.
func (r Reason) Sentence() string { return reasonSentences[r] }

// Known tells whether the reason is on the closed list.
func (r Reason) Known() bool {
	_, ok := reasonSentences[r]
	return ok || r == ReasonNone
}

// PRFate is what became of a run's pull request.
type PRFate string

// The fates. Only what somebody said is stored; that nothing was heard for long is told by runs.Fate.
const (
	FateNoNews   PRFate = ""         // nobody has said anything yet
	FateOpen     PRFate = "open"     // somebody saw it open
	FateMerged   PRFate = "merged"   // final
	FateClosed   PRFate = "closed"   // closed on GitHub without a merge: a person declined it
	FateDeclined PRFate = "declined" // a person said in Errand that it is not wanted
	FateUnknown  PRFate = "unknown"  // no news for longer than a pull request may hold its issue
)

// Outcome is what Decide answers: run, wait or skip.
type Outcome string

// The three outcomes of a decision.
const (
	OutcomeRun  Outcome = "run"
	OutcomeWait Outcome = "wait"
	OutcomeSkip Outcome = "skip"
)

// Gate is the typed reason of a decision: which gate held, or "ok".
type Gate string

// The gates. The order in which they are asked is written at dispatch.Decide; docs/decisions.md says what each means.
const (
	GateOK                    Gate = "ok"
	GateObserve               Gate = "observe_mode"           // would have run
	GateOrgPaused             Gate = "organisation_paused"    // somebody paused the organisation
	GateRepoPaused            Gate = "repository_paused"      // somebody paused the repository
	GateIssueNotAnError       Gate = "not_an_error"           // resolved, ignored or not an error at the tracker
	GateOutOfOrder            Gate = "stale_delivery"         // an older event came after a newer one
	GateLevelExcluded         Gate = "level_excluded"         // below the organisation's least level
	GateEnvironmentExcluded   Gate = "environment_excluded"   // of an environment that the organisation excludes
	GateTooFew                Gate = "too_few_events"         // not seen often enough yet
	GateStale                 Gate = "event_too_old"          // older than the age limit
	GateNoStack               Gate = "no_stack_trace"         // no frame and no project rule
	GateNoMapping             Gate = "no_mapping"             // no rule matches
	GateAmbiguous             Gate = "mapping_ambiguous"      // two rules match equally well: nothing is guessed
	GateMappingUnknown        Gate = "mapping_unknown"        // frames without directories: cannot be told
	GateRepoUnknown           Gate = "repository_unknown"     // the mapping's repository is not connected
	GateRepoArchived          Gate = "repository_archived"    // no workflow runs there
	GateRepoGone              Gate = "repository_gone"        // deleted, or out of the installation's reach
	GateInstallationGone      Gate = "installation_gone"      // the GitHub App was uninstalled, or never bound
	GateInstallationSuspended Gate = "installation_suspended" // its owner suspended it
	GateRepoBlocked           Gate = "repository_blocked"     // GitHub blocked it for legal reasons
	GatePermissions           Gate = "app_permissions"        // the installation grants other than what Errand may hold
	GateNotCounted            Gate = "not_counted"            // what the caps need is not known: nothing is started
	GateRunOpen               Gate = "run_open"               // a run of this issue is under way
	GatePROpen                Gate = "pull_request_open"      // its pull request has not been decided
	GateAlreadyFixed          Gate = "already_fixed"          // its fix was merged after this event was seen
	GateDeclined              Gate = "declined"               // a person declined the last fix
	GateSameProblem           Gate = "same_problem"           // another issue's run works on the same problem
	GateCooldown              Gate = "cooldown"               // a run of this issue ended a short while ago
	GateBreaker               Gate = "incident_breaker"       // many new issues of one repository at once
	GateOpenFixCap            Gate = "open_fix_cap"           // the repository has as many open fixes as it may
	GateDailyCap              Gate = "daily_cap"              // the organisation's runs of the day are used up
	GateUnpriced              Gate = "unpriced_usage"         // a budget is set and part of what was spent has no price
	GateBudget                Gate = "money_budget"           // what a run reserves does not fit into the budget
)

// Decision is the answer to "should this issue run now?", with what it rests on.
type Decision struct {
	Outcome  Outcome `json:"outcome"`
	Gate     Gate    `json:"gate"`
	Observed bool    `json:"observed,omitempty"` // observe mode: the outcome is what would have been done
	// Regression: the issue was resolved, or its fix merged, and was seen again later.
	Regression bool       `json:"regression,omitempty"`
	Detail     string     `json:"detail"`           // one sentence: what was seen
	Remedy     string     `json:"remedy,omitempty"` // how to change it
	Until      string     `json:"until,omitempty"`  // RFC 3339, for a wait that ends by itself
	Holder     ID         `json:"holder,omitempty"` // the run that is in the way
	Evidence   []Evidence `json:"evidence,omitempty"`
}

// Evidence is one fact that an answer rests on: where it was seen and what it was.
type Evidence struct {
	From string `json:"from"` // "mapping 3", "run history", "organisation"
	Seen string `json:"seen"`
}
