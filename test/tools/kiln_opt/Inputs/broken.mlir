func.func @f() {
  return ]
}
