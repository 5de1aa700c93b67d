package github

// advice is what whoever owns the repository or runs Errand is told to do: one sentence an outcome.
var advice = map[Outcome]string{
	WorkflowMissing: "Add .github/workflows/errand.yml to the default branch; GitHub starts a workflow only from there.",
	NoTrigger:       "The workflow file has no workflow_dispatch at that ref: replace it with the current docs/workflows/errand.yml.",
	RefMissing:      "Correct the mapping's ref: that branch does not exist.",
	Disabled:        "Enable the workflow, or Actions as a whole, in the repository's Actions page.",
	WorkflowTooOld:  "The workflow file does not take Errand's inputs: replace it with the current docs/workflows/errand.yml.",
	TooManyInputs:   "The workflow file declares more inputs than GitHub allows: replace it with docs/workflows/errand.yml.",
	InputsTooLarge:  "Errand sends two short inputs: something between it and GitHub changed them.",
	Moved:           "Nothing to do: Errand asks for the repository's new name by its id.",
	Archived:        "Unarchive the repository, or correct the mapping.",
	Gone:            "Give the GitHub App's installation access to the repository again, or correct the mapping.",
	NotFound:        "Nothing to do here: it is not at GitHub any more, or not for this App.",
	BlockedLegal:    "GitHub has blocked the repository; its owner has a message about it.",
	NotPermitted:    "Accept the App's permissions on the installation's page: Actions: write and Metadata: read.",
	Suspended:       "Resume the GitHub App in the account's settings, under Applications.",
	Deleted:         "Install the GitHub App again, and connect it.",
	IPAllowList:     "Add the address that GitHub names to the organisation's IP allow list, or allow it for installed GitHub Apps.",
	SSO:             "The organisation asks for single sign-on: its owner must authorise the GitHub App.",
	RatePrimary:     "Nothing to do: Errand goes on when GitHub's hourly quota is given again.",
	RateSecondary:   "Nothing to do: Errand waits as long as GitHub asks.",
	ClockSkew:       "Errand corrects itself by GitHub's clock; if it goes on, mend the clock of its machine.",
	BadCredentials:  "If it goes on, the App's private key is not accepted any more: set a new one.",
	Forbidden:       "GitHub gives no reason that Errand knows: it tries again, and GitHub's own words are in the run's history.",
	ServerError:     "Nothing to do: GitHub has trouble, and Errand tries again.",
	Unreachable:     "If it goes on, look at the network between Errand and GitHub.",
	NoAnswer:        "Nothing to do: Errand looks for the workflow run before it tries again.",
	Refused:         "GitHub's own words are in the run's history.",
	Conflict:        "Nothing to do: the workflow run is over.",
	OverGranted:     "Take the permissions beyond Actions: write and Metadata: read from the App, and accept the change on the installation's page.",
	NotConfigured:   "Set up the GitHub App: in the console under Set-up, or with ERRAND_GITHUB_APP_ID and its key.",
}

// Advice says to a person what to do about the outcome; "" for a success.
func (o Outcome) Advice() string { return advice[o] }
