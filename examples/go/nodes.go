// Which nodes can be asked who coordinates a group, and where a node may send its members. It asks nobody itself.

package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// rememberedMost is of coordinators besides the given nodes, so that the group is found when all of those are gone.
const rememberedMost = 8

// nodes are those that the user gave, and those that have coordinated the group since.
type nodes struct {
	given map[string]bool

	mutex sync.Mutex // guards what follows
	order []string   // in which they are asked
}

// nodesIn gives the nodes of a text with commas between their URLs.
func nodesIn(text string) (*nodes, error) {
	n := &nodes{given: map[string]bool{}}
	for _, part := range strings.Split(text, ",") {
		node := withoutSlash(strings.TrimSpace(part))
		if !isNode(node) {
			return nil, fmt.Errorf("coordinator: %q is not a URL like http://127.0.0.1:8000", node)
		}
		if !n.given[node] {
			n.order = append(n.order, node)
		}
		n.given[node] = true
	}
	return n, nil
}

// all gives them in the order in which they are asked.
func (n *nodes) all() []string {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return append([]string(nil), n.order...)
}

// hasOther: there is a node besides this one.
func (n *nodes) hasOther(node string) bool {
	for _, other := range n.all() {
		if other != node {
			return true
		}
	}
	return false
}

// learn: this node coordinates the group. If nobody gave it, it is remembered until enough others have.
func (n *nodes) learn(coordinator string) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.given[coordinator] {
		return
	}
	order, remembered := []string{coordinator}, 1
	for _, node := range n.order {
		if !n.given[node] && node != coordinator {
			remembered++
		}
		if node != coordinator && (n.given[node] || remembered <= rememberedMost) {
			order = append(order, node)
		}
	}
	n.order = order
}

// askLast: this node may be gone.
func (n *nodes) askLast(last string) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	var others, found []string
	for _, node := range n.order {
		if node == last {
			found = append(found, node)
		} else {
			others = append(others, node)
		}
	}
	n.order = append(others, found...)
}

// destination is where a node sends its members, as a URL of nodes. Empty where they may not go: what is named is no URL
// of a node, or the token would go over plain http though the one that names it was asked over https.
func destination(from, named string) string {
	named = withoutSlash(named)
	if !isNode(named) || lowersScheme(from, named) {
		return ""
	}
	return named
}

// lowersScheme: a node that was asked over https names one without.
func lowersScheme(from, named string) bool {
	return strings.HasPrefix(from, "https:") && strings.HasPrefix(strings.ToLower(named), "http:")
}

func withoutSlash(node string) string { return strings.TrimRight(node, "/") }

func isNode(node string) bool {
	parts, err := url.Parse(node)
	if err != nil || !(strings.HasPrefix(node, "http:") || strings.HasPrefix(node, "https:")) {
		return false
	}
	port, err := strconv.ParseUint(parts.Port(), 10, 16)
	hasPort := err == nil && port > 0 || parts.Port() == ""
	return hasPort && parts.Hostname() != "" && parts.User == nil && parts.RawQuery == "" && parts.Fragment == ""
}
