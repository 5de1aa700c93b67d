package main

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humaecho"

	"github.com/errand-dev/errand"
	"github.com/errand-dev/errand/access"
)

// sessionCaller says in whose organisation a request of /api/v1 is made: that of the signed-in person, by the session
// cookie of the console. A browser sends a cookie along for whoever asks it to, so a request from another site is refused.
func sessionCaller(people *access.Access) func(huma.Context) (errand.ID, error) {
	origin := http.NewCrossOriginProtection()
	return func(c huma.Context) (errand.ID, error) {
		e := humaecho.Unwrap(c)
		if err := origin.Check(e.Request()); err != nil {
			return "", &errand.Error{Code: errand.CodeForbidden, Message: "this request came from another site", Cause: err}
		}
		id, err := people.Session(c.Context(), people.Cookie(e))
		if err != nil {
			return "", err
		}
		if !id.May(access.See) {
			return "", &errand.Error{Code: errand.CodeForbidden, Message: "your role (" + string(id.Role) + ") does not allow this"}
		}
		return id.Org, nil
	}
}
