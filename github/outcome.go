package github

import "github.com/errand-dev/errand"

// Outcome is what an answer of GitHub means: a closed list.
type Outcome string

// The outcomes. Only Accepted is a success.
const (
	Accepted        Outcome = "accepted"
	WorkflowMissing Outcome = "workflow_missing" // no such file on the default branch
	NoTrigger       Outcome = "no_trigger"       // the ref's copy has no workflow_dispatch
	RefMissing      Outcome = "ref_missing"
	Disabled        Outcome = "disabled"         // the workflow, or Actions as a whole
	WorkflowTooOld  Outcome = "workflow_too_old" // it does not take our inputs, or wants others
	TooManyInputs   Outcome = "too_many_inputs"
	InputsTooLarge  Outcome = "inputs_too_large"
	Moved           Outcome = "moved" // renamed or transferred: ask App.Repository for the new name
	Archived        Outcome = "archived"
	Gone            Outcome = "gone"              // the repository is not there, or no longer in the installation
	NotFound        Outcome = "not_found"         // 404 to a read: the workflow run is not there, or not for us
	BlockedLegal    Outcome = "blocked_legal"     // 451
	NotPermitted    Outcome = "not_permitted"     // an explicit denial
	Suspended       Outcome = "suspended"         // the installation is suspended
	Deleted         Outcome = "deleted"           // the installation is uninstalled
	IPAllowList     Outcome = "ip_allow_list"     // the organisation admits other addresses only
	SSO             Outcome = "sso"               // the organisation asks for a single sign-on
	RatePrimary     Outcome = "rate_limited"      // the hour's quota is used up
	RateSecondary   Outcome = "secondary_limited" // too much at once
	ClockSkew       Outcome = "clock_skew"        // our clock and GitHub's disagree
	BadCredentials  Outcome = "bad_credentials"   // 401: the token or the App's key is not accepted
	Forbidden       Outcome = "forbidden"         // a 403 that says nothing we know: never taken as absence
	ServerError     Outcome = "server_error"      // 5xx
	Unreachable     Outcome = "unreachable"       // no connection: the request was never sent
	NoAnswer        Outcome = "unclear"           // sent, and no answer came: it may or may not have taken effect
	Refused         Outcome = "refused"           // any other 4xx
	Conflict        Outcome = "conflict"          // 409: the workflow run is over, or is already being cancelled
	OverGranted     Outcome = "over_granted"      // GitHub's token carries more than was asked for: not used
	NotConfigured   Outcome = "not_configured"    // this deployment has no GitHub App yet: nothing was sent
)

// OK tells whether GitHub did what it was asked.
func (o Outcome) OK() bool { return o == Accepted }

// Unclear tells whether the request may have taken effect although no answer says so.
func (o Outcome) Unclear() bool { return o == NoAnswer }

// Retry tells whether the same call can succeed later without anybody doing something. When is RetryAfter of the answer.
func (o Outcome) Retry() bool {
	switch o {
	case Moved, RatePrimary, RateSecondary, ClockSkew, BadCredentials, Forbidden, ServerError, Unreachable, NoAnswer, NotConfigured:
		return true
	default:
		return false
	}
}

var reasons = map[Outcome]errand.Reason{
	Accepted:        errand.ReasonNone,
	WorkflowMissing: errand.ReasonWorkflowMissing,
	NoTrigger:       errand.ReasonNoTrigger,
	RefMissing:      errand.ReasonRefMissing,
	Disabled:        errand.ReasonWorkflowDisabled,
	WorkflowTooOld:  errand.ReasonWorkflowTooOld,
	Archived:        errand.ReasonRepositoryArchive,
	Gone:            errand.ReasonRepositoryGone,
	Deleted:         errand.ReasonUninstalled,
	BlockedLegal:    errand.ReasonBlockedLegal,
	NotPermitted:    errand.ReasonNotPermitted,
	IPAllowList:     errand.ReasonNotPermitted,
	SSO:             errand.ReasonNotPermitted,
	Forbidden:       errand.ReasonNotPermitted,
	OverGranted:     errand.ReasonOverGranted,
	Suspended:       errand.ReasonSuspended,
	RatePrimary:     errand.ReasonNotDispatched,
	RateSecondary:   errand.ReasonNotDispatched,
	ClockSkew:       errand.ReasonNotDispatched,
	ServerError:     errand.ReasonNotDispatched,
	Unreachable:     errand.ReasonNotDispatched,
	NoAnswer:        errand.ReasonNothingFound,
	NotConfigured:   errand.ReasonNotDispatched,
}

// Reason is what the run ends with when the outcome is final: at once for one without Retry, at the deadline otherwise.
func (o Outcome) Reason() errand.Reason {
	if r, ok := reasons[o]; ok {
		return r
	}
	return errand.ReasonGitHubRefused
}
