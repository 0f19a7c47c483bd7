// One connection to the service: calls with their answers, and what comes unasked (docs/channels.md). It knows nothing
// of groups, and never tries anything again.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// callTimeout is for an answer, besides what the service was asked to hold it back.
const callTimeout = 10 * time.Second

// reachTimeout is for a handshake or a GET: a node that is later is as good as gone.
const reachTimeout = 3 * time.Second

// errDisconnected: the connection is gone, or never was. The call may have been heard or not.
var errDisconnected = errors.New("disconnected")

// Problem is a refusal of the service; the fields are those of docs/http.md#errors.
type Problem struct {
	ErrorName string `json:"error_name"`
	Detail    string `json:"detail"`
	Retriable bool   `json:"retriable"`
	MemberID  string `json:"member_id"` // of MEMBER_ID_REQUIRED
	URL       string `json:"url"`       // of NOT_COORDINATOR: the node that coordinates the group
}

func (p *Problem) Error() string { return p.ErrorName + ": " + p.Detail }

// Push is what nobody asked for.
type Push struct {
	Event        string `json:"event"`
	GenerationID int    `json:"generation_id"`
	URL          string `json:"url"` // of "unloaded": the node that coordinates the group now, if it is known
}

type message struct {
	Push
	ID     *int64          `json:"id"`
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
}

// channel is one WebSocket: many calls at a time, each answered by its id.
type channel struct {
	connection *websocket.Conn
	closed     chan struct{} // closed when nothing is read any more

	mutex   sync.Mutex
	lastID  int64
	waiting map[int64]chan message
}

// openChannel connects. onPush is called by the goroutine that reads, so it must not wait.
func openChannel(ctx context.Context, url string, shown Credentials, onPush func(*channel, Push)) (*channel, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	client, err := shown.client()
	if err != nil {
		return nil, err
	}
	// The library takes http for ws, and https for wss.
	how := &websocket.DialOptions{HTTPClient: client, HTTPHeader: shown.headers()}
	connection, _, err := websocket.Dial(ctx, url+"/v1/channel", how)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errDisconnected, err)
	}
	connection.SetReadLimit(-1) // a leader is told of all members in one message
	s := &channel{connection: connection, closed: make(chan struct{}), waiting: map[int64]chan message{}}
	go s.read(onPush)
	return s, nil
}

func (s *channel) read(onPush func(*channel, Push)) {
	defer close(s.closed)
	defer s.connection.CloseNow()
	for {
		var m message
		if wsjson.Read(context.Background(), s.connection, &m) != nil {
			return
		}
		if m.Event != "" {
			onPush(s, m.Push)
		}
		if m.ID != nil {
			if answer := s.take(*m.ID); answer != nil {
				answer <- m
			}
		}
	}
}

// take forgets a call, and gives what waits for its answer; nil if nobody does any more.
func (s *channel) take(id int64) chan message {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	answer := s.waiting[id]
	delete(s.waiting, id)
	return answer
}

// call sends a call and reads its answer into result. It reports whether that is a 202: send the same again. The
// service was asked to hold the answer back for held at most.
func (s *channel) call(ctx context.Context, op, groupID string, body, result any, held time.Duration) (bool, error) {
	answer := make(chan message, 1)
	s.mutex.Lock()
	s.lastID++
	id := s.lastID
	s.waiting[id] = answer
	s.mutex.Unlock()
	defer s.take(id)

	timeout := time.NewTimer(held + callTimeout)
	defer timeout.Stop()
	if err := s.write(map[string]any{"id": id, "op": op, "group_id": groupID, "body": body}); err != nil {
		return false, fmt.Errorf("%w: %v", errDisconnected, err)
	}
	select {
	case m := <-answer:
		return m.Status == http.StatusAccepted, parse(m.Status, m.Body, result)
	case <-s.closed:
		return false, fmt.Errorf("%w: the channel was closed", errDisconnected)
	case <-timeout.C: // a dead line, which nothing else would tell
		s.connection.CloseNow()
		return false, fmt.Errorf("%w: no answer", errDisconnected)
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// write has a context of its own: one that is cancelled in the middle of a message would end the connection.
func (s *channel) write(call any) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return wsjson.Write(ctx, s.connection, call)
}

func (s *channel) close() { s.connection.Close(websocket.StatusNormalClosure, "") }

// get asks the service by a GET.
func get(ctx context.Context, url, path string, shown Credentials, result any) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		return err
	}
	request.Header = shown.headers()
	client, err := shown.client()
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %v", errDisconnected, err)
	}
	defer answer.Body.Close()
	var body json.RawMessage
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return fmt.Errorf("%w: %v", errDisconnected, err)
	}
	return parse(answer.StatusCode, body, result)
}

// parse: what the service does not say, but a proxy, counts as no answer. Who said it may be gone at the next try.
func parse(status int, body json.RawMessage, result any) error {
	problem := &Problem{}
	if status == http.StatusOK || status == http.StatusAccepted {
		if json.Unmarshal(body, result) == nil {
			return nil
		}
	} else if json.Unmarshal(body, problem) == nil && problem.ErrorName != "" {
		return problem
	}
	return fmt.Errorf("%w: HTTP %d that is no answer of this service", errDisconnected, status)
}
