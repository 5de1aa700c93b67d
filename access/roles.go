package access

import "slices"

// Role is what a member is in an organisation.
type Role string

// The roles, strongest first.
const (
	Owner  Role = "owner"
	Admin  Role = "admin"
	Member Role = "member"
	Viewer Role = "viewer"
)

// Action is something that a person asks for and that not everybody may do.
type Action string

// The actions. A route of the console names the one it needs.
const (
	See       Action = "see"        // any page of the organisation
	RunNow    Action = "run_now"    // start a run by hand
	CancelRun Action = "cancel_run" // stop a run under way
	SignOut   Action = "sign_out"   // end one's own session

	SetUpGitHub Action = "set_up_github" // make the GitHub App, connect installations
)

// may is the one place where roles are checked. An action that is not here is allowed to nobody.
var may = map[Action][]Role{
	See:       {Owner, Admin, Member, Viewer},
	RunNow:    {Owner, Admin, Member},
	CancelRun: {Owner, Admin, Member},
	SignOut:   {Owner, Admin, Member, Viewer},

	SetUpGitHub: {Owner},
}

// May tells whether the identity's role allows the action. The zero Identity may nothing.
func (id Identity) May(action Action) bool {
	return id.Org != "" && id.Person != "" && slices.Contains(may[action], id.Role)
}
