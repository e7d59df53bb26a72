package dashboard

import (
	"errors"
	"net/http"
	"strings"
)

// loginBody is the maximum size of the login form.
const loginBody = 32 << 10

// loginView is the login form.
type loginView struct {
	Next    string // where to go then
	Problem string
}

// tokenOf returns the token of a request: that of the Authorization header, else that of the session.
// used says whether the request is of somebody, and not of a page that fetches itself.
func (d *Dashboard) tokenOf(r *http.Request, used bool) string {
	if token := bearer(r); token != "" {
		return token
	}
	cookie, err := r.Cookie(cookieName(r.TLS != nil))
	if err != nil {
		return ""
	}
	return d.sessions.token(cookie.Value, used)
}

// loginForm writes the login form, which leads back to the page that was asked for.
func (d *Dashboard) loginForm(w http.ResponseWriter, r *http.Request, status int, problem string) {
	next := r.URL.RequestURI()
	if r.Method == http.MethodPost {
		next = r.PostFormValue("next")
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	d.render(w, status, "login", layout{Title: "Sign in", View: loginView{Next: localPath(next), Problem: problem}})
}

// localPath returns a path of this server, / for anything else.
func localPath(next string) string {
	if len(next) > 2000 || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsAny(next, "\\\r\n\t") {
		return "/"
	}
	return next
}

// login begins a session for a token that the API server accepts.
func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, loginBody)
	if err := r.ParseForm(); err != nil {
		d.loginForm(w, r, http.StatusBadRequest, "The form cannot be read: tokens have at most 16 KiB.")
		return
	}
	token := strings.TrimSpace(r.PostForm.Get("token"))
	_, err := d.auth.viewer(r.Context(), token)
	switch {
	case errors.Is(err, errUnauthenticated):
		d.loginForm(w, r, http.StatusUnauthorized, "The API server of the hub does not accept this token. It may have expired.")
		return
	case err != nil:
		d.failed(w, r, "", err)
		return
	}
	secure := r.TLS != nil
	if old, err := r.Cookie(cookieName(secure)); err == nil {
		d.sessions.end(old.Value)
	}
	http.SetCookie(w, newCookie(d.sessions.create(token), secure))
	http.Redirect(w, r, localPath(r.PostForm.Get("next")), http.StatusSeeOther)
}

// logout ends the session.
func (d *Dashboard) logout(w http.ResponseWriter, r *http.Request) {
	secure := r.TLS != nil
	if cookie, err := r.Cookie(cookieName(secure)); err == nil {
		if token := d.sessions.token(cookie.Value, false); token != "" {
			d.auth.forget(token)
		}
		d.sessions.end(cookie.Value)
	}
	http.SetCookie(w, newCookie("", secure))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
