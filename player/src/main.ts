import { mount } from 'svelte';
import App from './App.svelte';
import './style.css';

const target = document.getElementById('player');
if (target) {
  target.textContent = '';
  mount(App, { target, props: { text: document.getElementById('farandole-data')?.textContent ?? 'null' } });
}
