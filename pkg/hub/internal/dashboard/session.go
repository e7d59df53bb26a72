package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Limits of sessions.
const (
	sessionIdle = time.Hour     // since the last request
	sessionLife = 8 * time.Hour // since the login
	maxSessions = 500
)

// sessions hold the tokens of those who have used the login form. A browser gets a random id in place
// of the token: cookies of 127.0.0.1 go to every port of the machine.
type sessions struct {
	now func() time.Time

	mu   sync.Mutex
	held map[[sha256.Size]byte]*session // guarded by mu: by digest of the id
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, held: make(map[[sha256.Size]byte]*session)}
}

type session struct {
	token         string
	created, used time.Time
}

func (s *session) ended(now time.Time) bool {
	return now.Sub(s.used) >= sessionIdle || now.Sub(s.created) >= sessionLife
}

// create begins a session and returns its id. The session that was used longest ago ends if there are
// too many.
func (s *sessions) create(token string) string {
	id, now := rand.Text()+rand.Text(), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest [sha256.Size]byte
	var last *session
	for key, other := range s.held {
		if other.ended(now) {
			delete(s.held, key)
		} else if last == nil || other.used.Before(last.used) {
			oldest, last = key, other
		}
	}
	if len(s.held) >= maxSessions {
		delete(s.held, oldest)
	}
	s.held[sha256.Sum256([]byte(id))] = &session{token: token, created: now, used: now}
	return id
}

// token returns the token of a session, "" if there is none. used says whether that counts as a
// request of somebody.
func (s *sessions) token(id string, used bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sha256.Sum256([]byte(id))
	held, now := s.held[key], s.now()
	if held == nil {
		return ""
	}
	if held.ended(now) {
		delete(s.held, key)
		return ""
	}
	if used {
		held.used = now
	}
	return held.token
}

// end ends a session.
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, sha256.Sum256([]byte(id)))
}

// bearer returns the token in the Authorization header, "" if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// cookieName returns the name of the cookie. With TLS its prefix has browsers refuse one that
// another host or plain HTTP has set.
func cookieName(secure bool) string {
	if secure {
		return "__Host-workwire-dashboard"
	}
	return "workwire-dashboard"
}

// newCookie returns the cookie with the id of a session; "" removes it.
func newCookie(id string, secure bool) *http.Cookie {
	cookie := &http.Cookie{Name: cookieName(secure), Value: id, Path: "/", HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode}
	if id == "" {
		cookie.MaxAge = -1
	}
	return cookie
}
